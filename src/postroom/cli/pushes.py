"""Pushes of a task, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from postroom.errors import Conflict, NotFound
from postroom.lines.words import Cell, span
from postroom.protocol.limits import SHORT_ID
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Push

PUSH_HEAD = ("PUSH", "CHANGE", "STATE", "TRIES", "NEXT", "TO")

COLOURS = {"delivered": "green", "pending": "yellow", "given-up": "red"}

PREFIX = "push_"


def push_row(push: Push, now: float) -> list[Cell]:
    """A push in a table under `PUSH_HEAD`."""
    state, next_at = push["state"], push["next_at"]
    due = "" if next_at is None else max(0.0, parse_time(next_at) - now)
    return [
        Cell(_digits(push["id"])[:SHORT_ID]),
        Cell(push["what"]),
        Cell(state, COLOURS.get(state)),
        Cell(str(push["attempts"])),
        Cell("" if due == "" else f"in {span(due)}" if due else "now"),
        Cell(push["url"]),
    ]


def reason_lines(pushes: Iterable[Push]) -> Iterator[str]:
    """Why attempts failed, a line for each push: a table would cut off what counts."""
    for push in pushes:
        if push["reason"]:
            yield f"{_digits(push['id'])[:SHORT_ID]}: {one_line(push['reason'], 300)}"


def chosen(pushes: Sequence[Push], ref: str) -> Push:
    """The push whose id is `ref`, or begins with it.

    Raises:
        NotFound, Conflict: none fits, or several.
    """
    wanted = _digits(ref)
    found = [push for push in pushes if wanted and _digits(push["id"]).startswith(wanted)]
    if not found:
        raise NotFound(f"the task has no push {one_line(ref, 64)!r}")
    if len(found) > 1:
        raise Conflict(f"several pushes begin with {one_line(ref, 64)!r}")
    return found[0]


def _digits(push: str) -> str:
    return push.removeprefix(PREFIX)
