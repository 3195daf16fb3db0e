"""What commands about keys and people share: options for a new key, and how it is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from postroom.protocol.principal import Scope
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import NewKey

COLOURS = {"valid": "green", "expired": "yellow", "revoked": "red"}

_SPAN = re.compile(r"([0-9]{1,6})([mhd])")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}


class Span(click.ParamType):
    """A length of time: `30d`, `12h` or `45m`, in seconds."""

    name = "span"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds."""
        if isinstance(value, float):
            return value
        found = _SPAN.fullmatch(str(value))
        if found is None or not int(found[1]):
            self.fail(f"{str(value)!r} is no length of time, such as 30d, 12h or 45m", param, ctx)
        return int(found[1]) * _SECONDS[found[2]]


scopes_option = click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it may be used for; several times for several. Without it: read, send, task.",
)
expires_option = click.option(
    "--expires", "expires_in", type=Span(), metavar="SPAN", help="When it ends: 30d, 12h, 45m."
)


def say_key(made: NewKey) -> None:
    """Print a key, alone on standard output, and beside it what it is."""
    agent = made["agent"]
    whose = f"@{one_line(agent['nick'], 64)}" if agent else made["id"]
    end = f", until {made['expires_at']}" if made["expires_at"] else ""
    may = ", ".join(made["scopes"])
    click.echo(f"key {made['id']} of {whose} ({may}{end}), shown this once:", err=True)
    click.echo(made["key"])
