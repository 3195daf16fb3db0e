"""Deciding on approvals: what is shown first, the PIN, and the answer."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.options import connect
from postroom.cli.output import print_json, report, terminal_width
from postroom.client.answering import Pin, pattern_of
from postroom.client.belonging import refuse_agents
from postroom.errors import Conflict, InvalidInput, PostroomError
from postroom.lines.approvals import details
from postroom.lines.inputs import draft_of
from postroom.protocol.approvals import check_editable
from postroom.view.approvals import outcome, what
from postroom.view.tasks import short
from postroom.view.words import address

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Approval, Policy

Input = Callable[["Approval"], dict[str, Any] | None]
"""The input to give in place of the agent's; None to leave it as it is."""


def decide(
    command: str,
    refs: Sequence[str],
    decision: str,
    *,
    worker: str = "",
    reason: str = "",
    given: Input = lambda _: None,
    always: str | None = None,
    pin_file: str | None = None,
    as_json: bool = False,
) -> None:
    """Show each approval, then answer it; go on with the others where one cannot be answered.

    Args:
        always: the pattern for which nobody is to be asked again, "" for one that fits; None for none.

    Raises:
        Forbidden: a coding agent seems to decide.
        NotFound, InvalidInput: one of `refs` names no approval: then none is answered.
        PostroomError: the last error of an answer; the others are printed.
    """
    refuse_agents(command)
    pin = pin_of(pin_file)
    done: list[Approval] = []
    errors: list[PostroomError] = []
    with connect() as client:
        for approval in [client.approval(ref, worker=worker) for ref in dict.fromkeys(refs)]:
            pattern = None if always is None else pattern_of(approval, always)
            try:
                done.append(_decide(client, approval, decision, reason, given, pin, quiet=as_json))
                if pattern is not None:
                    _allow(client, approval, pattern, pin, quiet=as_json)
            except PostroomError as error:
                errors.append(error)
    if as_json:
        print_json({"approvals": done})
    for error in errors[:-1]:
        report(error)
    if errors:
        raise errors[-1]


def _allow(client: Client, approval: Approval, pattern: str, pin: Pin, *, quiet: bool) -> None:
    """Add the pattern, and say where it is kept."""
    worker = approval["worker"]
    policy = pin.used(
        lambda known: client.allow_always(worker["uid"], pattern, known, channel="cli")
    )
    if not quiet:
        name = address(worker)
        say_answered(client, policy)
        click.echo(f"{name} does not ask for {pattern} any more; kept by the post room")
        click.echo(f"  postroom policy {name} --remove {shlex.quote(pattern)}")


def say_answered(client: Client, policy: Policy) -> None:
    """Say which approvals a change of the policy has answered: what had waited, and is allowed by it."""
    for ref in policy.get("answered", ()):
        approval = client.approval(ref, worker=policy["worker"]["uid"])
        click.echo(f"{approval['state']} {short(ref)}, which waited: {what(approval)}")


def _decide(
    client: Client,
    approval: Approval,
    decision: str,
    reason: str,
    given: Input,
    pin: Pin,
    *,
    quiet: bool,
) -> Approval:
    now = time.time()
    for line in () if quiet else details(approval, now, terminal_width()):
        click.echo(line)
    if approval["state"] != "pending":
        raise Conflict(f"{short(approval['id'])} is settled: {outcome(approval, now)}")
    edited = given(approval)
    uid = approval["worker"]["uid"]

    def send(known: str) -> Approval:
        return client.control(
            uid,
            approval["id"],
            decision if edited is None else "edited",
            input=edited,
            reason=reason,
            channel="cli",
            pin=known,
        )

    answered = pin.used(send)
    if not quiet:
        click.echo(f"{answered['state']} {short(answered['id'])} {address(answered['worker'])}")
    return answered


def _typed(mark: str) -> str:
    """As `asked`; "" without a terminal."""
    return asked(mark) if sys.stdin.isatty() else ""


def pin_of(file: str | None = None) -> Pin:
    """The PIN of the person at the terminal: from a file, or asked for when it is needed."""
    if file is not None:
        return Pin(_first_line(file), remedy="--pin-file FILE", report=report)
    return Pin(ask=_typed, remedy="--pin-file FILE", report=report)


def asked(what: str, *, twice: bool = False) -> str:
    """A PIN that the person types, which is not shown.

    Raises:
        InvalidInput: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise InvalidInput(
            "a PIN is needed, and there is no terminal to type it in", remedy="do it in a terminal"
        )
    return click.prompt(what, hide_input=True, confirmation_prompt=twice, err=True)


def edited(approval: Approval) -> dict[str, Any] | None:
    """The input as the person has edited it; None where it is as it was.

    Raises:
        InvalidInput: the agent takes none, it is no JSON object, or there is no editor.
    """
    check_editable(approval)
    draft = draft_of(approval["input"])
    # An editor ends the last line where it has no end.
    ended = draft.text.endswith("\n")
    before = draft.text if ended else draft.text + "\n"
    try:
        after = click.edit(before, extension=draft.suffix)
    except click.ClickException as error:
        said = f"the editor failed: {error.message}; nothing was decided"
        raise InvalidInput(said, remedy="EDITOR names another one") from error
    if after is None or after == before:
        return None
    value = draft.into(approval["input"], after if ended else after.removesuffix("\n"))
    return None if value == approval["input"] else value


def _first_line(file: str) -> str:
    try:
        return Path(file).read_text().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from error
