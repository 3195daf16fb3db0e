"""The folder that a worker works on: what the post room does about it, what did not come back of it; `task sync`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from postroom.cli.arguments import confirm
from postroom.cli.declaring import answers, number_option
from postroom.cli.options import connect
from postroom.cli.output import print_json
from postroom.cli.waiting import SLOW
from postroom.errors import Conflict, PostroomError
from postroom.lines.inputs import diff_style
from postroom.lines.rows import styled
from postroom.view.tasks import short
from postroom.view.workspaces import AGAINST_BOTH, MORE, counted, synced
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Merge, Synced

ASKING = "asks for its work"
"""What is said while nothing better is known."""


def tell_left(left: Iterable[str]) -> None:
    """Say what could not be brought back."""
    for name in left:
        click.echo(f"not brought back: {one_line(name, 300)}", err=True)


@contextmanager
def steps_told(who: Callable[[Client], str]) -> Generator[None]:
    """Say on standard error which step about a worker's folder goes on, if the block takes longer than `SLOW`.

    Args:
        who: finds the worker, by a connection of its own.
    """
    done = threading.Event()
    # `connect` asks the context which post room the command is for, and each thread has contexts of its own.
    command = click.get_current_context()
    teller = threading.Thread(target=_tell_steps, args=(command, who, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()


def _tell_steps(
    command: click.Context, who: Callable[[Client], str], done: threading.Event
) -> None:
    told = ""
    while not done.wait(SLOW):
        try:
            with command.scope(cleanup=False), connect() as client:
                workspace = client.worker(who(client)).get("workspace") or {}
        except PostroomError:
            continue  # the command itself says what is wrong
        now = one_line(str(workspace.get("doing") or ASKING), 100)
        if now != told and not done.is_set():
            click.echo(f"{now} ...", err=True)
            told = now


@click.command("sync", short_help="Bring a worker up to your newest commit.")
@answers(
    "nick @NICK",
    "--rebase: Make its commits anew on top, in place of a merge.",
    "--let-it-resolve resolve: On a conflict give its agent a task to join both.",
    number_option(
        "--timeout S: Seconds to wait for the end of its turn.", click.FloatRange(0, 3600), 300.0
    ),
    "--yes: The merge that its agent made counts; do not ask.",
)
def sync(nick: str, rebase: bool, resolve: bool, timeout: float, yes: bool, as_json: bool) -> None:
    """Bring the worker NICK up to the newest commit of the branch that it began from.

    It waits for the end of the agent's turn. What the worker has not committed stays so. On a conflict the worker is
    as it was, and the files are named; the exit status is 5 then. Your own files and branch are not touched.

    A merge that its agent made with --let-it-resolve is shown beside both sides, and counts once you say so: before
    that it is not applied.
    """
    with connect() as client:
        with steps_told(lambda _: nick):
            found = client.sync(nick, rebase=rebase, resolve=resolve, timeout=timeout)
        if merge := found.get("merge"):
            if not as_json:
                _show(merge)
            if as_json and not yes:
                print_json(found)
            confirm(
                "Does that merge count?",
                f"the merge that the agent of {nick} made does not count yet: nothing was changed",
                f"postroom task sync {nick} --yes",
                yes=yes,
            )
            found = client.sync(nick, accept=merge["commit"])
    if as_json:
        print_json(found)
    elif merge:
        click.echo(f"the merge counts: postroom task apply @{one_line(found['worker'])}", err=True)
    else:
        _tell_synced(found)
    if found["conflicts"] and not found["task"]:
        raise Conflict(
            f"nothing was changed: {counted(len(found['conflicts']), 'file')} conflict with the work of {nick}",
            remedy=f"postroom task sync {nick} --let-it-resolve; or merge its branch by hand",
        )


def _tell_synced(found: Synced) -> None:
    tell_left(found["left"])
    who = f"@{one_line(found['worker'])}"
    for name in found["conflicts"]:
        click.echo(f"conflict: {one_line(name, 300)}", err=True)
    if found["task"]:
        task = short(found["task"])
        click.echo(f"{who} joins both: postroom task watch {task}")
        click.echo(
            f"then see its merge, which counts once you say so: postroom task sync {who}", err=True
        )
    elif not found["conflicts"]:
        click.echo(synced(found))


def _show(merge: Merge) -> None:
    click.echo(AGAINST_BOTH, err=True)
    for line in printable(merge["text"]).rstrip("\n").split("\n"):
        click.echo(styled(line, diff_style(line)))
    if merge["cut"]:
        click.echo(MORE)
