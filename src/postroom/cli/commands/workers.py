"""Workers that are there: `postroom stop`, `restart`, `interrupt`, `revoke` and `remove`.

Each takes several of them; each is done for itself, and a fault of one does not keep the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from postroom.cli.completion import name_nearest
from postroom.cli.declaring import Answer as Reply
from postroom.cli.declaring import answers, parameter
from postroom.cli.options import connect, pin_file_option, verbose_option
from postroom.cli.output import print_json
from postroom.errors import PostroomError, exit_code
from postroom.protocol.modes import DIRECT
from postroom.view.words import address
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Removed, Worker, Workspace
    from postroom.templates.reading import Bundle

NICKS = "nicks NICK..."
ANY_NICKS = parameter(NICKS, required=False)

Answer = TypeVar("Answer")


def _nothing(_: Any) -> None:
    """Tell no more."""


def each(
    nicks: Sequence[str],
    act: Callable[[str], Answer],
    line: Callable[[Answer], str],
    *,
    as_json: bool,
    listed: bool = False,
    then: Callable[[Answer], None] = _nothing,
) -> int:
    """Do `act` for each worker and print a line of each answer; returns the exit status, that of the worst error.

    Args:
        listed: JSON is an object with the list `workers` also for one worker, whose own answer it is else.
        then: tells more behind the line, or raises.

    Raises:
        PostroomError: only one worker is named, and that is its error.
    """
    wanted = list({nick.removeprefix("@"): nick for nick in nicks}.values())
    if len(wanted) == 1 and not listed:
        answer = act(wanted[0])
        if as_json:
            print_json(answer)
        else:
            click.echo(line(answer))
        then(answer)
        return 0
    from postroom.cli.output import report

    answers: list[Answer] = []
    status = 0
    for nick in wanted:
        try:
            answer = act(nick)
            answers.append(answer)
            if not as_json:
                click.echo(line(answer))
            then(answer)
        except PostroomError as error:
            name_nearest(error)
            report(error)
            status = max(status, exit_code(error))
    if as_json:
        print_json({"workers": answers})
    return status


@click.command("stop")
@answers(ANY_NICKS, "--all everyone: Every worker that runs.")
def stop(nicks: tuple[str, ...], everyone: bool, as_json: bool) -> int:
    """Stop each worker NICK; its inbox keeps what comes until it is started again."""
    if everyone == bool(nicks):
        raise click.UsageError("Name workers, or say --all.")
    with connect() as client:
        if everyone:
            nicks = tuple(w["nick"] for w in client.workers() if w["desired"] == "running")
            if not (nicks or as_json):
                click.echo("no worker runs")
        return each(
            nicks,
            client.stop,
            lambda worker: f"stopped @{one_line(worker['nick'])}",
            as_json=as_json,
            listed=everyone,
        )


@click.command("restart")
@answers(
    NICKS,
    "--same: With the template and files that it has.",
    pin_file_option,
    "--detach -d: Do not wait until its agent has started.",
    verbose_option,
)
def restart(
    nicks: tuple[str, ...],
    same: bool,
    pin_file: str | None,
    detach: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Stop each worker NICK if it runs, and start it with its template as it is now.

    The template and its files are read where `spawn` read them. Its address, its inbox and its open tasks stay.
    """
    from postroom.cli.deciding import pin_of
    from postroom.cli.starting import details, report
    from postroom.lines.workers import sandbox_text
    from postroom.view.workers import WAIT

    pin = pin_of(pin_file)
    paths: dict[str, str] = {}

    with connect() as client:

        def start(nick: str) -> Worker:
            path = "" if same else client.worker(nick).get("template", "")
            bundle = _read(nick, path) if path else None
            with details(verbose):
                worker: Worker = pin.used(
                    lambda known: client.restart(
                        nick,
                        bundle.text if bundle else "",
                        files=bundle.files if bundle else None,
                        wait=0.0 if detach else WAIT,
                        pin=known,
                    )
                )
            paths[worker["uid"]] = path
            return worker

        def line(worker: Worker) -> str:
            news = _news(worker, paths[worker["uid"]])
            return f"restarted @{one_line(worker['nick'])}, {sandbox_text(worker)}{news}"

        return each(nicks, start, line, as_json=as_json, then=report)


def _read(nick: str, path: str) -> Bundle:
    from pathlib import Path

    from postroom.errors import InvalidTemplate
    from postroom.templates.reading import read

    if not Path(path).exists():
        name = nick.removeprefix("@")
        raise InvalidTemplate(
            f"the template of @{name} is gone: {path}",
            remedy=f"for the one that it has: postroom restart {name} --same",
        )
    return read(Path(path))


def _news(worker: Worker, path: str) -> str:
    if not path:
        return ""
    name = one_line(path.rpartition("/")[2])
    changed = ", ".join(one_line(word) for word in worker.get("changed", []))
    return f"; {name} changed: {changed}" if changed else f"; {name} has not changed"


@click.command("interrupt")
@answers(NICKS, "--reason TEXT: Why; it is in the history.")
def interrupt(nicks: tuple[str, ...], reason: str, as_json: bool) -> int:
    """End the turn of the agent of each worker NICK.

    What it has done stays, and its next turn goes on in the same session.
    """
    with connect() as client:
        return each(
            nicks,
            lambda nick: client.interrupt(nick, reason=reason, channel="cli"),
            # Whether it is in a turn only its sidecar knows.
            lambda sent: f"{address(sent['worker'])} is told to end its turn, if it is in one",
            as_json=as_json,
        )


@click.command("revoke")
@answers(ANY_NICKS, "--all-credentials everyone: Those of every worker.")
def revoke(nicks: tuple[str, ...], everyone: bool, as_json: bool) -> Reply:
    """Void every credential that each worker NICK ever got, cut its connections and stop it.

    Its address, inbox and files stay; `postroom restart NICK` gives it a new identity.
    """
    if everyone == bool(nicks):
        raise click.UsageError("Name workers, or say --all-credentials.")
    with connect() as client:
        if nicks:
            return each(nicks, client.revoke, _revoked, as_json=as_json)
        workers = client.revoke_all()
    return {"workers": workers}, map(_revoked, workers)


def _revoked(worker: Worker) -> str:
    return f"revoked @{one_line(worker['nick'])}"


@click.command("remove")
@answers(
    NICKS,
    "--purge: Delete its workspace and log, too.",
    "--yes: Do not ask, also if it has open tasks.",
)
def remove(nicks: tuple[str, ...], purge: bool, yes: bool, as_json: bool) -> int:
    """Stop each worker NICK and give up its address: what waits for it is dead, its nick is free.

    Its workspace stays on disk, until `postroom prune`.
    """
    with connect() as client:

        def end(nick: str) -> Removed:
            if not yes:
                worker = client.worker(nick)
                _ask(nick, worker.get("open_tasks", 0), purge=purge)
                if purge:
                    _ask_of_work(nick, worker.get("workspace"))
            return client.remove(nick, purge=purge)

        return each(nicks, end, lambda gone: _line(gone, purge=purge), as_json=as_json)


def _line(removed: Removed, *, purge: bool) -> str:
    said = f"removed @{one_line(removed['nick'])}"
    return f"{said} with its files" if purge else f"{said}; its files stay until: postroom prune"


def _ask_of_work(nick: str, workspace: Workspace | None) -> None:
    """Ask before a folder with work is deleted; a folder that it wrote itself is not its own."""
    if not workspace or workspace["mode"] == DIRECT:
        return
    from postroom.cli.arguments import confirm

    name, branch = nick.removeprefix("@"), one_line(workspace["branch"])
    keeps = f"its work stays on {branch}" if branch else "all its work is in it"
    confirm(
        f"delete the folder of @{name}? {keeps}",
        f"the folder of @{name} would be deleted; {keeps}",
        f"postroom remove {name} --purge --yes",
        yes=False,
    )


def _ask(nick: str, open_tasks: int, *, purge: bool) -> None:
    if not open_tasks:
        return
    from postroom.cli.arguments import confirm

    name = nick.removeprefix("@")
    tasks = "1 open task" if open_tasks == 1 else f"{open_tasks} open tasks"
    confirm(
        f"@{name} has {tasks}, which will fail; remove it?",
        f"@{name} has {tasks}, which would fail",
        f"postroom remove {name}{' --purge' if purge else ''} --yes",
        yes=False,
    )
