"""`postroom grants`: let others reach you or your agents, take that back, and ask to be let in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.commands.keys import Span
from postroom.cli.declaring import Answer, Parameter, answers, asks, parameter
from postroom.cli.options import connect, state_option
from postroom.cli.output import print_table
from postroom.lines.text import Cell
from postroom.view.words import address, ago, span
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.answers import Asked
    from postroom.protocol.shapes import Grant, GrantRequest, GrantsOnly

COLOURS = {"valid": "green", "expired": "yellow", "revoked": "red"}
SCOPES = ("message", "task", "card")


class Scopes(click.ParamType):
    """What one is let in for: `message`, `task`, `card`, or several joined by commas."""

    name = "scopes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """The scopes."""
        if isinstance(value, list):
            return value
        found = [word.strip() for word in str(value).split(",")]
        for word in found:
            if word not in SCOPES:
                self.fail(f"{word!r} is none of {', '.join(SCOPES)}", param, ctx)
        return found


def _for(what: str) -> Parameter:
    return parameter(f"--scope scopes WHAT: {what}", type=Scopes())


_until = parameter("--until expires_in SPAN: When it ends: 30d, 12h, 45m.", type=Span())

HEAD = ("GRANT", "TO REACH", "IS LET IN", "FOR", "STATE", "ENDS")
ASKED_HEAD = ("REQUEST", "ASKS", "TO REACH", "FOR", "SINCE", "WHY")


@click.group("grants")
@state_option()
def command() -> None:
    """Let agents reach you or your agents, take that back, and ask to be let in.

    An agent of another organisation is @NICK.ORG. Inside an organisation everybody reaches everybody, but for those who
    say `grants only on`.
    """


@command.command("allow", short_help="Let an agent in.")
@asks(
    "grants.allow",
    "grantee @NICK[.ORG]",
    "--to granter @NICK: Whom it may reach, an agent of yours. Without it: you, and all that are yours.",
    _for("message, task, card, or several with commas. Without it: message."),
    _until,
)
def allow(made: Grant, grantee: str) -> None:
    """Let @NICK in, or @NICK.ORG of another organisation; a uid will do, too.

    Whether there is such an agent in another organisation, nobody is told.
    """
    end = f", until {made['expires_at']}" if made["expires_at"] else ""
    said = f"{one_line(grantee, 140)} may reach {address(made['granter'])}"
    click.echo(f"{said} for {', '.join(made['scopes'])}{end}: grant {made['id'][:12]}")


@command.command("list", short_help="List who is let in.")
@asks(
    "grants.list",
    "--for agent @NICK: Those of one agent of yours.",
    "--all ended: Ended ones, too.",
)
def listing(found: list[Grant]) -> None:
    """List whom you and your agents have let in, and who has let you in."""
    now = time.time()
    rows = [
        [
            Cell(each["id"][:12]),
            Cell(address(each["granter"])),
            Cell(address(each["grantee"])),
            Cell(",".join(each["scopes"])),
            Cell(each["state"], COLOURS.get(each["state"])),
            Cell(_left(each, now)),
        ]
        for each in found
    ]
    print_table(HEAD, rows, cut=("IS LET IN",), empty="nobody is let in")


@command.command("revoke", short_help="Take a grant back.")
@asks("grants.revoke", "grant")
def revoke(ended: Grant) -> None:
    """Take back the grant GRANT: its id, or whom it lets in, as `grants list` shows that.

    It counts from the next message on; what was accepted stays.
    """
    click.echo(f"{address(ended['grantee'])} may no more reach {address(ended['granter'])}")


@command.command("ask", short_help="Ask to be let in.")
@asks(
    "grants.ask",
    "granter @NICK.ORG",
    "--reason TEXT: Why, in one line.",
    _for("As for allow."),
)
def ask(asked: Asked) -> None:
    """Ask @NICK.ORG to be let in.

    Whether there is such an agent, nobody is told: you hear from it, or not.
    """
    click.echo(f"asked {one_line(asked['granter'], 140)}, if there is one")


@command.command("requests", short_help="List who asks to be let in.")
@asks("grants.requests", "--all answered: Answered ones, too.")
def requests(found: list[GrantRequest]) -> None:
    """List who asks you or your agents to be let in."""
    now = time.time()
    rows = [
        [
            Cell(each["id"][:12]),
            Cell(address(each["grantee"])),
            Cell(address(each["granter"])),
            Cell(",".join(each["scopes"])),
            Cell(each["state"] if each["state"] != "pending" else ago(each["asked_at"], now)),
            Cell(one_line(each["reason"], 120)),
        ]
        for each in found
    ]
    print_table(ASKED_HEAD, rows, cut=("WHY",), empty="nobody asks")


@command.command("answer", short_help="Answer who asks to be let in.")
@asks(
    "grants.answer",
    "asked REQUEST",
    parameter(
        "decision", type=click.Choice(["allow", "deny"]), callback=lambda *asked: _said(asked[2])
    ),
    _for("Other than what is asked for."),
    _until,
)
def answer(done: GrantRequest) -> None:
    """Answer the request REQUEST (an id of `grants requests`): allow or deny. The first answer counts."""
    click.echo(f"{done['state']}: {address(done['grantee'])} to reach {address(done['granter'])}")


@command.command("only", short_help="Be reached by grants alone, or by all.")
@answers(
    parameter("switch [on|off]", type=click.Choice(["on", "off"]), default=None),
    "agent [@NICK]",
)
def only(switch: str | None, agent: str) -> Answer:
    """Be reached by those alone whom you have let in (on), or by your whole organisation (off).

    With @NICK it is for that agent of yours. Without on or off it shows how it is.
    """
    with connect() as client:
        if switch is None:
            shown = client.grants_only(agent=agent)
        else:
            shown = client.set_grants_only(switch == "on", agent=agent)
    return shown, _told(shown)


def _told(shown: GrantsOnly) -> str:
    who = address(shown["agent"])
    if shown["grants_only"] or shown["everybody"]:
        why = "" if shown["grants_only"] else ", as all of its organisation are"
        return f"{who} is reached by those alone whom it has let in{why}"
    return f"{who} is reached by all of its organisation, and by those whom it has let in"


def _said(decision: str) -> str:
    return {"allow": "allowed", "deny": "denied"}.get(decision, decision)


def _left(grant: Grant, now: float) -> str:
    if grant["state"] != "valid":
        return "-"
    ends = grant["expires_at"]
    return "never" if ends is None else f"in {span(parse_time(ends) - now)}"
