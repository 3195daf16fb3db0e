"""`postroom delegate`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.completion import agents
from postroom.cli.content import Given, content_options, said, talk_options, upload_parts
from postroom.cli.declaring import answers
from postroom.cli.following import events_option, follow, timeout_option
from postroom.cli.options import connect
from postroom.cli.output import print_json
from postroom.view.tasks import accepted_line, short
from postroom.view.words import address
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Task

EXAMPLES = """\b
Examples:
  postroom delegate @reader "review src/ for races"
  postroom delegate --skill review --wait < change.diff > findings.txt
  postroom delegate @reader "summarise it" --file report.pdf --wait
  postroom delegate @reader "nightly report" --key report-2026-01-31
  postroom delegate https://agents.example/translator "good morning" --wait
"""

_ADDRESS = re.compile(r"@[a-z0-9][a-z0-9_-]*")


@click.command("delegate", epilog=EXAMPLES)
@answers(
    click.argument("words", metavar="[@NICK|URL] [TEXT]...", nargs=-1, shell_complete=agents),
    "--skill S: Skill that the agent has; without @NICK: any such.",
    content_options,
    talk_options,
    "--wait: Show how it goes, then the result.",
    events_option,
    timeout_option,
    "--key K: Idempotency key: once only per key.",
    "--credential NAME: For a URL: the one of `postroom credential` that its requests have.",
    "--deadline S: For a URL: seconds that a task of that agent may take; a day if not given.",
    of="agents.add_remote",
)
def command(
    words: tuple[str, ...],
    skill: str,
    wait: bool,
    events: bool | None,
    timeout: float | None,
    key: str,
    credential: str,
    deadline: float | None,
    as_json: bool,
    **content: Any,
) -> int:
    """Give the agent @NICK (or uid) the task TEXT; without TEXT, or for `-`, standard input is the task.

    A URL is an agent of other people, an A2A server: it gets an address here, as by `postroom agents add --a2a`, and
    the task goes there.

    With --file or --data no TEXT is needed. What the agent does not take is refused before anything is sent.

    The task is on disk when its id is printed, and waits if the agent is offline. With --wait its progress
    goes to standard error and its result to standard output; the exit status is 0 if it completed, 11 if it
    failed, 12 if it was canceled, 13 if it was rejected. With --json each change is one line of JSON. In a terminal
    it is also shown what the agent does, and what it asks is answered there.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    to, rest = _recipient(words, skill)
    given = Given(**content)
    text = said(rest, given)
    with connect() as client, client.transport.within(timeout):
        if to.startswith(("http://", "https://")):
            to = _remote(client, to, credential, deadline)
        elif credential or deadline:
            raise click.UsageError("--credential and --deadline are for a URL.")
        parts = upload_parts(client, given)
        task = client.delegate(text, to=to, skill=skill, key=key, parts=parts, **given.talk)
        if not (wait and as_json):
            _say(task, wait=wait, as_json=as_json, chosen=not to)
        if wait:
            return follow(client, task, timeout=timeout, as_json=as_json, events=events)
    return 0


def _remote(client: Client, url: str, credential: str, deadline: float | None) -> str:
    """The uid of the agent of other people at `url`, which gets an address here if it has none."""
    found = client.add_remote(url, credential=credential, deadline=deadline)
    if found["added"]:
        click.echo(f"@{found['nick']} is the agent at {one_line(url, 200)}", err=True)
    return found["uid"]


def _recipient(words: tuple[str, ...], skill: str) -> tuple[str, tuple[str, ...]]:
    """The recipient of the task, and the words of its text.

    With a skill the first word is the recipient only if it is one `@nick`: otherwise the text begins with it.
    """
    if words and (not skill or _ADDRESS.fullmatch(words[0])):
        if any(mark.isspace() for mark in words[0]):
            raise click.UsageError("To whom? @NICK or --skill S goes in front of the text.")
        return words[0], words[1:]
    if not skill:
        raise click.UsageError("To whom? @NICK or --skill S.")
    return "", words


def _say(task: Task, *, wait: bool, as_json: bool, chosen: bool) -> None:
    if as_json:
        print_json(task)
        return
    click.echo(accepted_line(task), err=wait)
    if chosen:
        click.echo(f"given to {address(task['worker'])}", err=True)
    if not wait:
        detail = one_line(task["detail"], 300)
        click.echo(
            f"{detail}{'; ' if detail else ''}postroom task watch {short(task['id'])}", err=True
        )
