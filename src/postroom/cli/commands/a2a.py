"""`postroom a2a`: a client of any A2A server."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from postroom.cli.declaring import (
    Answer,
    Decorator,
    Parameter,
    answers,
    number_option,
    parameter,
)
from postroom.cli.options import chosen_org, state_folder, state_option
from postroom.cli.output import print_table
from postroom.errors import Unauthorized
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.cli.a2a import Session

KEY = "POSTROOM_A2A_KEY"
"""Variable with a key for the server that a command names."""

EXAMPLES = f"""\b
Examples:
  postroom a2a card https://agents.example/translator
  postroom a2a send https://agents.example/translator "good morning" --wait
  {KEY}=... postroom a2a send URL --stream < report.txt
  postroom a2a send URL "the second one" --task ID --wait

A key comes from `postroom credential` (--credential NAME), or from the variable {KEY}, and goes only to the
host that it is for. No post room has to run; --state says whose credentials are meant.
"""

T = TypeVar("T")


@click.group("a2a", epilog=EXAMPLES)
@state_option()
def command() -> None:
    """Call any A2A server: its card, its tasks, what happens there.

    JSON-RPC and REST of A2A 1.0 and JSON-RPC of 0.3 are spoken; which one, the server's card says.
    """


def _calling(*parameters: Parameter, seconds: float, patience: str) -> Decorator:
    """The parameters of a command, and the options of all of them."""
    return answers(
        "url",
        *parameters,
        number_option(f"--timeout S: {patience}", click.FloatRange(0), seconds),
        "--credential NAME: Send the key that `postroom credential` keeps by that name.",
        parameter(
            f"--header LINE: How the key of {KEY} is sent.",
            default="Authorization: Bearer {secret}",
            show_default=True,
        ),
        number_option(
            "--retries N: Times that a failed call is tried again.", click.IntRange(0, 20), 4
        ),
        "--patient: If the server has too many requests, wait as long as it says.",
    )


_once = partial(_calling, seconds=60.0, patience="Seconds for the whole call.")


@command.command("card", short_help="Show the card of an agent.")
@_once(
    parameter(
        "--keys FILE: Public keys (a JWK set); one of them must have signed the card.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    )
)
def card(url: str, keys: Path | None, timeout: float, as_json: bool, **how: Any) -> Answer:
    """Show who the agent at URL says that it is, and how it is called.

    URL is the agent's address, or that of its card.
    """
    from postroom.cli.a2a import verifier

    session = _session(url, timeout, how)
    client = _run(session.open(None if keys is None else verifier(keys)))
    if as_json:
        return client.card, ()
    from postroom.cli.a2a import card_lines

    to = client.interface
    lines = [*card_lines(client.card, to.url, to.binding, to.version)]
    return client.card, [*lines, *([f"signed by a key of {one_line(str(keys))}"] if keys else [])]


@command.command("send", short_help="Send a message, which begins a task or goes on with one.")
@_calling(
    "text [TEXT]...",
    "--wait: Wait for the result.",
    "--stream: Show what happens, then the result.",
    "--context ID: Conversation that it belongs to.",
    "--task ID: Task that it answers.",
    "--id message_id ID: Id of the message: what is sent again with it is done once.",
    seconds=3600.0,
    patience="Seconds until the end, with --wait or --stream.",
)
def send(
    url: str,
    text: tuple[str, ...],
    wait: bool,
    stream: bool,
    context: str,
    task: str,
    message_id: str,
    timeout: float,
    as_json: bool,
    **how: Any,
) -> int:
    """Send TEXT to the agent at URL; without TEXT, or for `-`, standard input.

    Prints the task's id and state. With --wait the result alone goes to standard output; the exit status is 0 if the
    task completed, 11 if it failed, 12 if it was canceled, 13 if it was rejected, 9 if it asks something.
    """
    from postroom.cli.content import Given, said

    given = {"messageId": message_id, "contextId": context, "taskId": task}
    message: dict[str, Any] = {name: value for name, value in given.items() if value}
    message["parts"] = [{"text": said(text, Given((), "", ()))}]
    session = _session(url, timeout, how, as_json=as_json)
    return _run(session.send(message, follow=wait or stream, show=stream))


@command.command("get", short_help="Show a task.")
@_once("task")
def get(url: str, task: str, timeout: float, as_json: bool, **how: Any) -> None:
    """Show a task of the agent at URL as it is now, with its results."""
    _run(_session(url, timeout, how, as_json=as_json).show(task))


@command.command("list", short_help="List tasks.")
@_once(
    "--context ID: Only of this conversation.",
    parameter("--limit N: At most so many.", default=20, type=click.IntRange(1, 100)),
)
def list_(url: str, context: str, limit: int, timeout: float, **how: Any) -> Answer:
    """List your tasks at the agent at URL, those that changed last first. A2A 0.3 has no lists."""
    page = _run(_session(url, timeout, how).page(context, limit))
    from postroom.cli.a2a import HEAD, task_row

    rows = [task_row(task) for task in page["tasks"]]
    cut = ("LAST", "TASK", "CONTEXT")
    return page, lambda: print_table(HEAD, rows, cut=cut, empty="no tasks")


@command.command("cancel", short_help="Cancel a task.")
@_once("task")
def cancel(url: str, task: str, timeout: float, as_json: bool, **how: Any) -> None:
    """Cancel a task of the agent at URL."""
    _run(_session(url, timeout, how, as_json=as_json).cancel(task))


def _stream(url: str, task: str, timeout: float, as_json: bool, **how: Any) -> int:
    """Show what happens to a task of the agent at URL from now on, then its result."""
    return _run(_session(url, timeout, how, as_json=as_json).follow(task))


for _name, _hidden in (("stream", False), ("subscribe", True)):
    _made = command.command(_name, short_help="Follow a task to its end.", hidden=_hidden)
    _made(_calling("task", seconds=3600.0, patience="Seconds until the end.")(_stream))


def _session(url: str, timeout: float, how: dict[str, Any], *, as_json: bool = False) -> Session:
    from postroom.cli.a2a import Session, bound_key, kept_credential

    if how["credential"]:
        org = chosen_org()
        headers = kept_credential(state_folder(), org, how["credential"], url)
    else:
        headers = bound_key(os.environ.get(KEY, ""), how["header"], url)
    return Session(
        url, headers, timeout, attempts=how["retries"] + 1, patient=how["patient"], as_json=as_json
    )


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    try:
        return asyncio.run(work)
    except Unauthorized as error:
        # Whatever the server advises is about the server.
        raise Unauthorized(
            error.message, remedy=f"give its key: --credential NAME, or the variable {KEY}"
        ) from error
