"""`/spawn`: as `postroom spawn` does it, with a post room that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.errors import InvalidInput
from postroom.tui.news import Target

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.tui.typing.commands import Command


def spawn(_: Client, command: Command) -> tuple[str, Target]:
    """Start a worker; returns what there is to say, and the worker."""
    raise InvalidInput("not here yet", remedy=f"postroom spawn {command['template']}")
