"""Input that several commands take from a person: a text, a project, a confirmation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from postroom.errors import Conflict, NotFound
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client


def text_argument(words: tuple[str, ...]) -> str:
    """The words, or standard input where there are none on a pipe, or only `-`.

    Raises:
        MessageTooLarge: standard input holds more than a message can.
    """
    if words and words != ("-",):
        text = " ".join(words)
    elif sys.stdin is None or (not words and sys.stdin.isatty()):
        raise click.UsageError("Missing argument 'TEXT' (or pipe the text in).")
    else:
        text = _read_input()
    if not text.strip():
        raise click.UsageError("the text is empty")
    return text


def _read_input() -> str:
    from postroom.errors import MessageTooLarge
    from postroom.protocol.limits import MAX_ENVELOPE_BYTES

    content = sys.stdin.buffer.read(MAX_ENVELOPE_BYTES + 1)
    if len(content) > MAX_ENVELOPE_BYTES:
        raise MessageTooLarge(
            f"the text is over the limit of {MAX_ENVELOPE_BYTES} bytes",
            remedy="put large content into a file, and send that with --file PATH",
        )
    return content.decode(errors="replace").rstrip("\n")


NAMED = 10
"""Projects that an error names."""

new_option = click.option("--new", is_flag=True, help="Make the project, if there is none.")


def check_project(client: Client, project: str, *, new: bool) -> None:
    """Ask before a post makes a new project: one without members and posts.

    Raises:
        NotFound: there is no such project, and nobody confirmed it.
    """
    if new:
        return
    known = client.projects()
    if project.removeprefix("#") in known:
        return
    said = f"there is no project {one_line(project, 70)!r}"
    names = ", ".join(f"#{one_line(name, 64)}" for name in known[:NAMED])
    more = " …" if len(known) > NAMED else ""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        asked = f"{said} (there is {names}{more}). Make it?"
        if click.confirm(asked[0].upper() + asked[1:], err=True):
            return
    raise NotFound(said, remedy=f"{names}{more}, or --new to make it")


def confirm(question: str, refusal: str, with_yes: str, *, yes: bool) -> None:
    """Return if the action may be done: `yes` is set, or a person at the terminal confirms it.

    Args:
        refusal: the error's text where nobody can be asked.
        with_yes: the command that does it without a question.
        yes: the option of the command line.

    Raises:
        Conflict: nobody can be asked.
        click.Abort: the person said no.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Conflict(refusal, remedy=f"to confirm: {with_yes.strip()}")
    click.confirm(question, abort=True, err=True)
