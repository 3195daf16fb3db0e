"""In which order what waits for an answer stands, wherever it is listed. Pure.

What expires soon comes first, the soonest before all; then the oldest. So the first of any list is the one that a key
of the screen opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval, Task

    Asked = TypeVar("Asked", Approval, Task, Approval | Task)

SOON = 60.0
"""Seconds before its expiry from which something goes before what is older."""


def waiting(
    approvals: Sequence[Approval], questions: Iterable[Task], now: float
) -> list[Approval | Task]:
    """What waits for an answer, in order.

    Args:
        approvals, questions: as the status has them. What is asked in a turn for a task is the task's own question, and
            stands there once.
        now: seconds since the epoch.
    """
    tasks = list(questions)
    named = {task["id"] for task in tasks}
    doubled = [one for one in approvals if one["kind"] == "question" and one["task"] in named]
    return in_order([*(one for one in approvals if one not in doubled), *tasks], now)


def in_order(asked: Iterable[Asked], now: float) -> list[Asked]:
    """Approvals and questions in that order."""

    def place(one: Asked) -> tuple[bool, float, str]:
        expires = expiry(one)
        soon = expires is not None and expires - now <= SOON
        return not soon, expires if soon and expires is not None else since(one), one["id"]

    return sorted(asked, key=place)


def since(asked: Approval | Task) -> float:
    """When it was asked, in seconds since the epoch."""
    return parse_time(str(asked.get("asked_at") or asked.get("updated_at")))


def expiry(asked: Approval | Task) -> float | None:
    """When it is decided without a person; None for never."""
    at = asked.get("expires_at")
    return parse_time(str(at)) if at else None


def until_another(asked: Iterable[Approval | Task], now: float) -> float | None:
    """Seconds until time alone puts one before another; None for never."""
    ends = [at - SOON - now for one in asked if (at := expiry(one)) is not None]
    return min((left for left in ends if left > 0), default=None)
