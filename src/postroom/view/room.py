"""The post room as the screen shows it, made of the API's answers. Pure; no Textual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from postroom.view.needs import Need, needs_of, until_another
from postroom.view.workers import asking, urgency

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval, Listed, Mail, Me, Status, Task, Worker


@dataclass(frozen=True)
class Room:
    """A snapshot.

    Attributes:
        status: the post room's answer.
        projects: names, sorted.
        pending: all pending approvals, the oldest first; None: those of `status` are all.
        agents: those that have no worker: people, and agents that run elsewhere.
        unread: the oldest unread messages to this person.
        reached: the URL at which the post room was reached, which of another machine is not its own; "" for its own.
        at: when it was taken, in seconds since the epoch; what expires soon then stands first.
    """

    status: Status
    projects: tuple[str, ...] = ()
    pending: tuple[Approval, ...] | None = None
    agents: tuple[Listed, ...] = ()
    unread: tuple[Mail, ...] = ()
    reached: str = ""
    at: float = 0.0

    @property
    def me(self) -> Me:
        """Who looks at it."""
        return self.status["me"]

    @property
    def hidden(self) -> bool:
        """Whether the workers are not shown to this person, who does not operate."""
        return "pid" not in self.status["server"]

    @property
    def approvals(self) -> Sequence[Approval]:
        """The pending approvals, the oldest first."""
        return self.status.get("approvals", []) if self.pending is None else self.pending

    @cached_property
    def asking(self) -> frozenset[str]:
        """Uids of the workers whose approvals are pending."""
        return asking(self.approvals)

    @property
    def questions(self) -> Sequence[Task]:
        """The tasks that wait for an answer."""
        return self.status.get("attention", [])

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """Those that need a person first, those that ended on purpose last."""
        return tuple(sorted(self.status["workers"], key=urgency))

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """What needs a person."""
        return needs_of(self.status, self.approvals, self.unread, self.at)

    @property
    def until_another(self) -> float | None:
        """Seconds after `at` until another need stands first by time alone; None for never."""
        return until_another(self.approvals, self.at)

    def workers_of(self, project: str) -> list[Worker]:
        """The workers of a project, in the order of `workers`; "" for those of none."""
        return [worker for worker in self.workers if worker["project"] == project]

    def worker(self, ref: str) -> Worker | None:
        """The worker of that uid or nick, also with `@`; None for none."""
        name = ref.removeprefix("@")
        by_uid = self._by_uid.get(name)
        return by_uid if by_uid is not None else self._by_nick.get(name)

    def agent(self, ref: str) -> Listed | None:
        """The same among those that have no worker."""
        name = ref.removeprefix("@")
        found = [one for one in self.agents if name in (one["uid"], one["nick"])]
        return found[0] if found else None

    def uid(self, ref: str) -> str:
        """The uid of an agent of that uid or nick, "" for one that is not known."""
        found = self.worker(ref) or self.agent(ref)
        return found["uid"] if found is not None else ""

    def approval(self, ref: str, worker: str = "") -> Approval | None:
        """The pending approval whose id is or begins so, if it is the only one; `worker` is the uid of its worker."""
        return _only([a for a in self.approvals if worker in ("", a["worker"]["uid"])], ref)

    def question(self, ref: str) -> Task | None:
        """The task that waits for an answer, the same way."""
        return _only(self.questions, ref)

    @cached_property
    def _by_uid(self) -> dict[str, Worker]:
        return {worker["uid"]: worker for worker in self.status["workers"]}

    @cached_property
    def _by_nick(self) -> dict[str, Worker]:
        return {worker["nick"]: worker for worker in self.status["workers"]}


def _only(records: Sequence[Any], ref: str) -> Any:
    """The record of that id, else the only one whose id begins so."""
    exact = [record for record in records if record["id"] == ref]
    found = exact or [record for record in records if ref and record["id"].startswith(ref)]
    return found[0] if len(found) == 1 else None
