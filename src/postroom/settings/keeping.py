"""How long and how much is kept of a kind of record: `90d`, `2GiB`, or both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from postroom.errors import InvalidInput
from postroom.protocol.ids import NAME

KINDS = ("messages", "tasks", "events", "posts", "announcements")
"""What a project may have limits of its own for."""

DAY = 86400.0

_DAYS = re.compile(r"([1-9][0-9]{0,5})d")
_SECONDS = re.compile(r"[1-9][0-9]{0,5}")
_BYTES = re.compile(r"([1-9][0-9]{0,8})(KiB|MiB|GiB|TiB)")
_UNIT = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept; None for all.

    Attributes:
        seconds: from the end of a thing.
        size: bytes of one project.
    """

    seconds: float | None = None
    size: int | None = None

    @property
    def all(self) -> bool:
        """Whether everything is kept for ever."""
        return self.seconds is None and self.size is None


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of each kind, and of some projects by rules of their own."""

    kinds: Mapping[str, Keep] = field(default_factory=dict)
    projects: Mapping[tuple[str, str], Keep] = field(default_factory=dict)

    def of(self, kind: str, project: str) -> Keep:
        """What is kept of that kind in `project`; "" for what belongs to none."""
        return self.projects.get((project, kind)) or self.kinds.get(kind, Keep())

    def limited(self, kind: str) -> bool:
        """Whether anything of that kind is ever given up."""
        rules = [keep for (_, of), keep in self.projects.items() if of == kind]
        return not all(keep.all for keep in (*rules, self.kinds.get(kind, Keep())))

    def sized(self, kind: str) -> bool:
        """Whether sizes of that kind must be known."""
        rules = [keep for (_, of), keep in self.projects.items() if of == kind]
        return any(keep.size is not None for keep in (*rules, self.kinds.get(kind, Keep())))


def parse_keep(text: str) -> Keep:
    """`for ever`, or days, or a size, or both.

    Raises:
        InvalidInput: it is none of these.
    """
    if text in {"", "for ever"}:
        return Keep()
    seconds: float | None = None
    size: int | None = None
    for word in text.split():
        if (days := _DAYS.fullmatch(word)) and seconds is None:
            seconds = int(days[1]) * DAY
        elif (amount := _BYTES.fullmatch(word)) and size is None:
            size = int(amount[1]) * _UNIT[amount[2]]
        else:
            raise InvalidInput(
                f"{text!r} does not say how much is kept",
                remedy="days, a size or both, such as 90d, 2GiB or `90d 2GiB`; or `for ever`",
            )
    return Keep(seconds, size)


def parse_age(text: str) -> Keep:
    """`for ever` or days.

    Raises:
        InvalidInput: it is neither.
    """
    keep = parse_keep(text)
    if keep.size is not None:
        raise InvalidInput(f"{text!r} is no age", remedy="days, such as 90d; or `for ever`")
    return keep


def parse_pauses(text: str) -> tuple[float, ...]:
    """Seconds before each further attempt; `none` for no further one.

    Raises:
        InvalidInput: one is none, or more than a week.
    """
    words = [] if text == "none" else text.split()
    for word in words:
        if _SECONDS.fullmatch(word) is None or int(word) > 7 * DAY:
            raise InvalidInput(
                f"{word!r} is no pause", remedy="seconds, such as `300 1800`, or `none`"
            )
    return tuple(map(float, words))


def parse_project(text: str) -> tuple[str, str, Keep]:
    """`PROJECT KIND KEEP`: project, kind and what is kept.

    Raises:
        InvalidInput: it is not of that form.
    """
    project, _, rest = text.removeprefix("#").partition(" ")
    kind, _, keep = rest.partition(" ")
    if NAME.fullmatch(project) is None or kind not in KINDS or not keep:
        raise InvalidInput(
            f"{text!r} is no rule of a project",
            remedy=f"PROJECT KIND KEEP, such as `research messages 30d`; KIND is one of: {', '.join(KINDS)}",
        )
    return project, kind, parse_keep(keep)


def keeping(kinds: Mapping[str, str], projects: Iterable[str]) -> Keeping:
    """The rules in the texts of the settings."""
    found = [parse_project(text) for text in projects]
    return Keeping(
        {kind: parse_keep(text) for kind, text in kinds.items()},
        {(project, kind): keep for project, kind, keep in found},
    )
