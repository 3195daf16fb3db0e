"""The clients that can be connected: where their files are, and what is written there."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.connect.clients.base import Client
from postroom.connect.clients.claude import CLAUDE
from postroom.connect.clients.codex import CODEX
from postroom.connect.clients.gemini import GEMINI
from postroom.connect.clients.opencode import OPENCODE

CLIENTS: Mapping[str, Client] = {
    client.name: client for client in (CLAUDE, CODEX, GEMINI, OPENCODE)
}
