"""What the parts of the screen tell each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual.message import Message

from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.stream import Event
    from postroom.errors import PostroomError
    from postroom.view.room import Room

CHANNEL = "screen"
"""Where a decision was made, as the record has it."""

LOADING = "loading ..."
"""Stands where nothing is yet."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is looked at: a project (`name` without #) or an agent (`name` is its nick, `uid` its id)."""

    name: str
    uid: str = ""

    @property
    def is_project(self) -> bool:
        """Whether it is a project."""
        return not self.uid

    def __str__(self) -> str:
        """`#project` or `@nick`."""
        return f"#{self.name}" if self.is_project else f"@{self.name}"


@dataclass
class Chosen(Message):
    """The person looks at something else now: the middle and the right show it."""

    target: Target


@dataclass
class NeedChosen(Message):
    """The person wants to answer one thing that needs them: `id` of an approval or of a task, "" for the first."""

    id: str = ""


@dataclass
class Snapshot(Message, bubble=False):
    """The state of the whole post room has changed. The link gives it to each part that has `on_snapshot`."""

    room: Room


@dataclass
class Happened(Message, bubble=False):
    """Events of the whole post room, the oldest first; to each part that has `on_happened`."""

    events: Sequence[Event]


@dataclass
class Away(Message, bubble=False):
    """The post room has gone (`away`), or is there again; to each part that has `on_away`."""

    away: bool
    why: str = ""


@dataclass
class Typed(Message):
    """A line was typed."""

    text: str


@dataclass
class Said(Message):
    """Something to tell the person in the line above the input: what was done, or an error (`bad`)."""

    text: str
    bad: bool = field(default=False, kw_only=True)


@dataclass
class Unsent(Message):
    """A text was not sent: it goes back into the line."""

    text: str


def trouble(error: PostroomError, before: str = "") -> Said:
    """An error and its remedy.

    Args:
        before: what was not done, such as `not sent`.
    """
    head = f"{before}: " if before else ""
    remedy = f"\n  try: {one_line(error.remedy, 300)}" if error.remedy else ""
    return Said(f"{head}{one_line(error.message, 300)}{remedy}", bad=True)
