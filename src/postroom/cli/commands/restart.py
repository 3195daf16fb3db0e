"""`postroom restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.approvals.deciding import pin_file_option, pin_of
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.several import each, nicks_argument
from postroom.cli.starting import verbose_option
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker
    from postroom.templates.reading import Bundle


@click.command("restart")
@nicks_argument
@click.option("--same", is_flag=True, help="With the template and files that it has.")
@pin_file_option
@click.option("--detach", "-d", is_flag=True, help="Do not wait until its agent has started.")
@verbose_option
@json_option
@state_option()
def command(
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
    from postroom.cli.starting import details, report
    from postroom.view.workers import WAIT, sandbox_text

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
