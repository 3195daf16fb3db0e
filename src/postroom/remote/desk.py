"""What a task at an agent of other people needs of the post room, and how long it waits for the other side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from postroom.protocol.content import Content
from postroom.store.ports import TaskRow
from postroom_a2a.task_state import TaskState


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds.

    Attributes:
        away: that the other side may be away before the task fails.
        retry, longest_retry: between two tries, at most.
        cancel: in which a cancel is tried at the other side; the end of the task here waits for it.
        first, longest: between two looks at a task that is followed by looking; `asking` while it asks something.
    """

    away: float = 600.0
    cancel: float = 10.0
    retry: float = 0.5
    longest_retry: float = 30.0
    first: float = 1.0
    longest: float = 30.0
    asking: float = 120.0


class Desk(Protocol):
    """What a task needs of the post room."""

    patience: Patience

    async def row(self, task: str) -> TaskRow | None:
        """The task as it is here."""

    async def status(
        self,
        agent: str,
        task: str,
        state: TaskState,
        said: Content | None,
        metadata: dict[str, Any],
    ) -> None:
        """Report a state, as `TaskReports.status`."""

    async def artifact(
        self, agent: str, task: str, artifact: dict[str, Any], append: bool, last: bool
    ) -> None:
        """Report an artifact, as `TaskReports.artifact`."""

    async def outgoing(self, agent: str, part: dict[str, Any]) -> dict[str, Any]:
        """A part as the other side can read it: content instead of the name of a blob. Raises InvalidInput."""

    def reached(self, agent: str, *, there: bool) -> None:
        """The other side answers, or does not."""
