# ruff: noqa: ARG001
"""Allowing a tool from now on: the pattern, and writing it into the worker's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.errors import InvalidInput

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Approval, Party


def suggest(approval: Approval) -> str:
    """The pattern that is proposed, "" where there is none."""
    return ""


def added(pattern: str) -> str:
    """The pattern as it is kept; raises InvalidInput."""
    raise InvalidInput(f"{pattern!r} is no pattern")


def allow_always(client: Client, worker: Party, pattern: str, pin: str) -> str:
    """Write it; returns where it is kept and how it is taken back."""
    raise InvalidInput(f"{pattern!r} is no pattern")
