"""Waits for a receipt, and errors for a message that did not get that far."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import Decorator, number_option, parameter, takes
from postroom.cli.output import print_content, print_json
from postroom.errors import PostroomError, Refused, RequestTimeout
from postroom.protocol.receipts import Reason, State, reached
from postroom.view.words import expiry
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Mail, Milestone

MILESTONES = ("delivered", "seen", "answered")
DEFAULT_TIMEOUT = 120.0


SLOW = 1.0
"""Seconds after which a command says what it waits for."""


@contextmanager
def said_if_slow(text: str) -> Generator[threading.Timer]:
    """Say on standard error what the command waits for, if it takes longer than `SLOW`."""
    timer = threading.Timer(SLOW, click.echo, (text,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def wait_options(help_text: str) -> Decorator:
    """`--wait MILESTONE` and `--timeout S`, as `milestone` and `timeout`."""
    return takes(
        parameter(f"--wait milestone: {help_text}", type=click.Choice(MILESTONES)),
        number_option(
            "--timeout S: Seconds for --wait.", click.FloatRange(0, 86400), DEFAULT_TIMEOUT
        ),
    )


def check(mail: Mail, milestone: str, timeout: float) -> None:
    """Raise unless `mail` has reached `milestone`.

    Raises:
        RequestTimeout: it is still on its way.
    """
    state = State(mail["state"])
    if state is State.DEAD:
        raise Refused(
            f"message {mail['id']} is dead: {mail['reason'] or 'no reason given'}",
            remedy=_after_death(mail["reason"]),
        )
    if not reached(state, State(milestone)):
        raise RequestTimeout(
            f"not {milestone} within {timeout:g} s: message {mail['id']} is {state.value} and still on its way",
            remedy="wait longer with --timeout; an answer will be in: postroom inbox",
        )


def _after_death(reason: str) -> str:
    if reason.startswith(
        Reason.EXPIRED.value
    ):  # the recipient did not fail, so there is no dead letter
        return "send it again, with more time or without --expires"
    return "postroom deadletters list"


def _recipients_fault(client: Client, mail: Mail) -> str:
    """Why the recipient will not answer soon, "" for no known reason."""
    if mail["to"].get("kind") != "worker":
        return ""
    try:
        worker = client.worker(mail["to"]["uid"])
    except PostroomError:  # the person has to see the timeout
        return ""
    if worker["state"] not in ("failed", "exited", "stopped", "stalled"):
        return ""
    return f"@{worker['nick']} is {worker['state']}: postroom restart {worker['nick']}"


def await_milestone(
    client: Client, sent: Mail, milestone: Milestone, timeout: float, *, as_json: bool
) -> None:
    """Wait, print the state of `sent` (or its answer, which then counts as seen), and raise as `check` does."""
    mail = client.wait(sent["id"], milestone, timeout)
    if as_json:
        print_json(mail)
    try:
        check(mail, milestone, timeout)
    except RequestTimeout as late:
        late.remedy = _recipients_fault(client, mail) or late.remedy
        raise
    answer = mail["answer"] if milestone == "answered" else None
    if not as_json:
        if answer:
            print_content(answer)
        else:
            click.echo(receipt_line(mail))
    if answer:
        client.mark_seen(answer["id"])  # after it was shown: click writes at once


def receipt_line(mail: Mail) -> str:
    """Id and state of a message, how it was delivered where its recipient says it, until when it waits to be seen, and
    the reason if it is dead.
    """
    line = f"{one_line(mail['id'])} {one_line(mail['state'])}"
    if how := one_line(mail.get("how", "")):
        line += f" by {how}" if mail["state"] == State.DELIVERED else f", delivered by {how}"
    if until := expiry(mail, time.time()):
        line += f", {until}"
    return f"{line}: {one_line(mail['reason'])}" if mail["reason"] else line
