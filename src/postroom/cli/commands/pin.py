"""`postroom pin`: set, clear, status."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.approvals.deciding import asked, pin_of
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.client.belonging import refuse_agents
from postroom.lines.words import span
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Pin as PinStatus


@click.group("pin")
@state_option()
def command() -> None:
    """Have every decision in your name demand a PIN.

    The control plane asks for it, whatever program decides; see docs/security.md for what that stops.
    """


@command.command("set")
@json_option
@state_option()
def set_(as_json: bool) -> None:
    """Set your PIN, or replace it; it is asked for here, and never shown."""
    refuse_agents("pin")
    with connect() as client:
        had = client.pin()["set"]
        new = asked("New PIN", twice=True)
        pin = pin_of().used(lambda known: client.set_pin(new, known))
    _said(
        pin,
        "replaced your PIN" if had else "set your PIN: every decision needs it from now on",
        as_json=as_json,
    )


@command.command("clear")
@json_option
@state_option()
def clear(as_json: bool) -> None:
    """Remove your PIN; it is asked for once more."""
    refuse_agents("pin")
    with connect() as client:
        before = client.pin()
        pin = pin_of().used(lambda known: client.set_pin("", known)) if before["set"] else before
    _said(pin, "removed your PIN" if before["set"] else "you have no PIN", as_json=as_json)


def _said(pin: PinStatus, line: str, *, as_json: bool) -> None:
    if as_json:
        print_json(pin)
    else:
        click.echo(line)


@command.command("status")
@json_option
@state_option()
def status(as_json: bool) -> None:
    """Say whether you have a PIN."""
    with connect() as client:
        pin = client.pin()
    if as_json:
        print_json(pin)
    elif not pin["set"]:
        click.echo("you have no PIN (postroom pin set)")
    elif pin["paused_until"]:
        left = span(parse_time(pin["paused_until"]) - time.time())
        click.echo(f"you have a PIN; after wrong ones no try is taken for {left}")
    else:
        click.echo(f"you have a PIN; {pin['tries_left']} wrong ones until a pause")
