"""`postroom diff`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import Answer, answers
from postroom.cli.options import connect
from postroom.cli.workspaces import steps_told, tell_left
from postroom.lines.inputs import diff_style
from postroom.lines.rows import styled
from postroom.lines.workers import place_text
from postroom.protocol.modes import LOOK
from postroom.view.workspaces import MORE, apart, changed, waits, whole
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from postroom.protocol.shapes import Difference


@click.command("diff")
@answers(
    "nick @NICK",
    "paths [PATH]...",
    "--stat: Only the files, with the number of changed lines.",
    "--large: Let in the files over workspace.max_file_mb.",
)
def command(nick: str, paths: tuple[str, ...], stat: bool, large: bool) -> Answer:
    """Show what the worker NICK changed in the folder that it works on, since it began.

    It brings the worker's branch up to date first, with what is not committed as one more commit. PATHs are files
    and folders of the repository.
    """
    with connect() as client, steps_told(lambda _: nick):
        found = client.diff(nick, paths, stat=stat, large=large)
    return found, lambda: _show(found)


def _show(found: Difference) -> None:
    click.echo(_summary(found), err=True)
    tell_left(found["left"])
    for note in found["workspace"].get("notes", []):
        if note.startswith(LOOK):
            click.echo(f"look before you merge: {one_line(note, 300)}", err=True)
    if found.get("merge"):
        click.echo(waits(found["worker"]), err=True)
    lines = [styled(line, diff_style(line)) for line in printable(whole(found)).split("\n")]
    if found["cut"]:
        lines.append(MORE)
    text = "\n".join(lines).rstrip("\n")
    if text and sys.stdout.isatty():
        click.echo_via_pager(f"{text}\n")
    elif text:
        click.echo(text)


def _summary(found: Difference) -> str:
    said = ", ".join(filter(None, (changed(found), apart(found["workspace"]))))
    return f"@{one_line(found['worker'])} {place_text(found['workspace'])}: {said}"
