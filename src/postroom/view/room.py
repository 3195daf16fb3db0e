"""The post room as the screen shows it, made of the API's answers. Pure; no Textual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from postroom.lines.parts import gist
from postroom.view.approvals import what
from postroom.view.needs import expiry, since, until_another, waiting
from postroom.view.status import FAILED, asking, broken, told_alerts, urgency
from postroom.view.tasks import kept, question_of
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert, Approval, Listed, Mail, Me, Status, Task, Worker

SAID = 300
"""Characters of a need's text."""


class NeedKind(Enum):
    """Why a person is needed; what no dialog answers is listed in this order."""

    APPROVAL = "approval"
    QUESTION = "question"
    FAILED = "failed"
    STALLED = "stalled"
    ALERT = "alert"
    MAIL = "mail"
    DEAD = "dead letters"


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that needs a person.

    Attributes:
        id: of the approval, of the task, of the alert; the uid of the worker that has failed, or of who has sent
            unread messages; "" for dead letters, which are counted together.
        worker, nick: uid and nick of the worker or of the sender, "" for none.
        text: on one line, harmless.
        since: when it was asked for, in seconds since the epoch; 0 where that is not known.
        expires: when it is decided without a person; None for never.
        record: the approval, the task, the worker, the alert, or the sender's oldest unread message.
    """

    kind: NeedKind
    id: str
    worker: str
    nick: str
    text: str
    since: float = 0.0
    expires: float | None = None
    record: Any = None

    @property
    def key(self) -> str:
        """Names it as long as it stands; an approval's id is the agent's own word, so the worker belongs to it."""
        return f"{self.kind.value}/{self.worker}/{self.id}"

    @property
    def who(self) -> str:
        """`@nick`, "" where it is of no worker."""
        return f"@{one_line(self.nick, 64)}" if self.nick else ""


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
        """What needs a person: what waits for an answer (`view.needs`), then the rest by kind, the oldest first."""
        order = {kind: place for place, kind in enumerate(NeedKind)}
        rest = sorted(_others(self), key=lambda need: (order[need.kind], need.since))
        return (*map(_asked, waiting(self.approvals, self.questions, self.at)), *rest)

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


def _others(room: Room) -> Iterator[Need]:
    """What no dialog answers."""
    yield from (_failure(worker) for worker in room.workers if broken(worker))
    yield from map(_alert, told_alerts(room.status))
    for trouble in filter(None, (room.status.get("bus"), room.status.get("audit"))):
        yield Need(NeedKind.ALERT, "", "", "", one_line(trouble, SAID))
    yield from _mails(room)
    if dead := room.status["deadletters"]:
        yield Need(NeedKind.DEAD, "", "", "", f"{dead} dead letter{'s' if dead > 1 else ''}")


def _mails(room: Room) -> Iterator[Need]:
    """Unread messages, one need for each sender."""
    senders: dict[str, list[Mail]] = {}
    for mail in room.unread:
        senders.setdefault(mail["from"]["uid"], []).append(mail)
    for uid, mails in senders.items():
        first, count = mails[0], f"({len(mails)}) " if len(mails) > 1 else ""
        said = f"{count}{gist(first)}"
        nick, at = first["from"]["nick"], parse_time(first["sent_at"])
        yield Need(NeedKind.MAIL, uid, uid, nick, said, at, record=first)
    rest = room.status.get("inbox", 0) - len(room.unread)
    if rest > 0:
        more = "more " if senders else ""
        at = parse_time(room.unread[-1]["sent_at"]) if senders else 0.0
        yield Need(NeedKind.MAIL, "", "", "", f"{rest} {more}unread to you", at)


def _asked(record: Any) -> Need:
    return _approval(record) if "tool" in record else _question(record)


def _approval(approval: Approval) -> Need:
    who = approval["worker"]
    asks = one_line(approval["title"], SAID) if approval["kind"] == "question" else ""
    return Need(
        NeedKind.APPROVAL,
        approval["id"],
        who["uid"],
        who["nick"],
        asks or f"{one_line(approval['tool'], 80)}: {what(approval)}",
        since(approval),
        expiry(approval),
        approval,
    )


def _question(task: Task) -> Need:
    who = task["worker"]
    return Need(
        NeedKind.QUESTION,
        task["id"],
        who["uid"],
        who["nick"],
        one_line(
            f"{question_of(task)} ({why})" if (why := kept(task)) else question_of(task), SAID
        ),
        since(task),
        record=task,
    )


def _failure(worker: Worker) -> Need:
    kind = NeedKind.STALLED if worker["state"] == "stalled" else NeedKind.FAILED
    said = FAILED.get(worker["state"], "does not run")
    detail = one_line(worker["detail"], SAID)
    seen = worker["last_seen"]
    return Need(
        kind,
        worker["uid"],
        worker["uid"],
        worker["nick"],
        f"{said}: {detail}" if detail else said,
        parse_time(seen) if seen else 0.0,
        record=worker,
    )


def _alert(alert: Alert) -> Need:
    who = alert["who"]
    return Need(
        NeedKind.ALERT,
        str(alert["id"]),
        who["uid"] if who else "",
        alert["nick"],
        one_line(alert["text"], SAID),
        parse_time(alert["at"]),
        record=alert,
    )
