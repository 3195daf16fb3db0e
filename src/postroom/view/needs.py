"""What needs a person, in one order and in the same words wherever it is listed. Pure.

What expires soon comes first, the soonest before all; then the oldest. So the first of any list is the one that a key
of the screen opens. What no dialog answers comes behind that, by its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.protocol.approvals import IN_WORDS
from postroom.view.approvals import what
from postroom.view.tasks import answer_hint, kept, question_of, short
from postroom.view.words import gist
from postroom.view.workers import FAILED, broken, told_alerts, urgency
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert, Approval, Mail, Status, Task, Worker

    Asked = TypeVar("Asked", Approval, Task, Approval | Task)

SOON = 60.0
"""Seconds before its expiry from which something goes before what is older."""

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


ANSWERED = frozenset({NeedKind.APPROVAL, NeedKind.QUESTION})
"""What a person answers in a dialog."""


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


def needs_of(
    status: Status, approvals: Sequence[Approval], unread: Sequence[Mail], now: float
) -> tuple[Need, ...]:
    """All that needs a person, in order.

    Args:
        approvals: all that are pending.
        unread: the oldest unread messages to this person.
        now: seconds since the epoch.
    """
    order = {kind: place for place, kind in enumerate(NeedKind)}
    rest = sorted(_others(status, unread), key=lambda need: (order[need.kind], need.since))
    return (*map(_asked, waiting(approvals, status.get("attention", []), now)), *rest)


def _others(status: Status, unread: Sequence[Mail]) -> Iterator[Need]:
    """What no dialog answers."""
    workers = sorted(status["workers"], key=urgency)
    yield from (_failure(worker) for worker in workers if broken(worker))
    yield from map(_alert, told_alerts(status))
    for trouble in filter(None, (status.get("bus"), status.get("audit"))):
        yield Need(NeedKind.ALERT, "", "", "", one_line(trouble, SAID))
    yield from _mails(status, unread)
    if dead := status["deadletters"]:
        yield Need(NeedKind.DEAD, "", "", "", f"{dead} dead letter{'s' if dead > 1 else ''}")


def _mails(status: Status, unread: Sequence[Mail]) -> Iterator[Need]:
    """Unread messages, one need for each sender."""
    senders: dict[str, list[Mail]] = {}
    for mail in unread:
        senders.setdefault(mail["from"]["uid"], []).append(mail)
    for uid, mails in senders.items():
        first, count = mails[0], f"({len(mails)}) " if len(mails) > 1 else ""
        said = f"{count}{gist(first)}"
        nick, at = first["from"]["nick"], parse_time(first["sent_at"])
        yield Need(NeedKind.MAIL, uid, uid, nick, said, at, record=first)
    rest = status.get("inbox", 0) - len(unread)
    if rest > 0:
        more = "more " if senders else ""
        at = parse_time(unread[-1]["sent_at"]) if senders else 0.0
        yield Need(NeedKind.MAIL, "", "", "", f"{rest} {more}unread to you", at)


def _asked(record: Any) -> Need:
    return _approval(record) if "tool" in record else _question(record)


def _approval(approval: Approval) -> Need:
    who = approval["worker"]
    asks = one_line(approval["title"], SAID) if approval["kind"] in IN_WORDS else ""
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
    who, why = task["worker"], kept(task)
    said = f"{question_of(task)} ({why})" if why else question_of(task)
    return Need(
        NeedKind.QUESTION, task["id"], who["uid"], who["nick"], said, since(task), record=task
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


Key = tuple[str, int]
"""Tells a need from every other one, also from the next question of the same task."""


def key_of(need: Need) -> Key:
    """The need's key, and the sequence of the record that asks."""
    return need.key, int(need.record["seq"])


def asks_in_words(need: Need) -> bool:
    """Whether it is answered with words."""
    return need.kind is NeedKind.QUESTION or need.record["kind"] == "question"


def line_of(need: Need) -> str:
    """The need on one line, harmless: `@coder asks to use Bash: make test`."""
    if need.kind not in ANSWERED:
        return f"{need.who} {need.text}".lstrip()
    said = asks_in_words(need) or need.record["kind"] in IN_WORDS
    return f"{need.who} asks{':' if said else ' to use'} {need.text}"


def command_of(need: Need) -> str:
    """What goes on with an approval, a question or a worker that has failed in a shell."""
    match need.kind:
        case NeedKind.APPROVAL:
            return f"postroom approve {short(need.id)}; postroom deny {short(need.id)}"
        case NeedKind.QUESTION:
            return answer_hint(need.id)
    nick = one_line(need.nick)
    return f"postroom logs {nick}; postroom restart {nick}"


def answerable(needs: Iterable[Need]) -> list[Need]:
    """Those that a person answers in a dialog, in the same order."""
    return [need for need in needs if need.kind in ANSWERED]


class Queue:
    """What waits, in the order in which it was given, without what was answered here; and what may open by itself."""

    def __init__(self) -> None:
        self._needs: dict[Key, Need] = {}
        self._known: set[Key] = set()
        self._answered: set[Key] = set()
        self._later: set[Key] = set()

    def take(self, needs: Iterable[Need]) -> Sequence[Need]:
        """Take over what waits now; returns what is new among it."""
        said = {key_of(need): need for need in needs}
        # What was answered here may still stand in an answer of the post room that was on its way.
        self._answered &= said.keys()
        self._later &= said.keys()
        self._needs = {key: need for key, need in said.items() if key not in self._answered}
        new = [need for key, need in self._needs.items() if key not in self._known]
        self._known = (self._known & said.keys()) | self._needs.keys()
        return new

    def answered(self, need: Need) -> None:
        """It waits no more, whatever an older answer of the post room says."""
        self._needs.pop(key_of(need), None)
        self._answered.add(key_of(need))

    def later(self, need: Need) -> None:
        """The person has put it off: it opens by a key alone."""
        self._later.add(key_of(need))

    def onward(self, need: Need) -> Need | None:
        """The one that comes after a need, without those that were put off."""
        one: Need | None = need
        for _ in self._needs:
            one = self.beside(one, 1)
            if one is not None and key_of(one) != key_of(need) and key_of(one) not in self._later:
                return one
        return None

    @property
    def order(self) -> list[Need]:
        """All of it."""
        return list(self._needs.values())

    def __contains__(self, need: Need) -> bool:
        return key_of(need) in self._needs

    def __len__(self) -> int:
        return len(self._needs)

    def find(self, id_: str) -> Need | None:
        """The need with that id of an approval or a task, or with an id that begins so."""
        return next((need for need in self._needs.values() if need.id.startswith(id_)), None)

    def place(self, need: Need) -> tuple[int, int]:
        """Which one it is, from 1, and of how many; (0, …) where it waits no more."""
        order = list(self._needs)
        key = key_of(need)
        return (order.index(key) + 1 if key in order else 0, len(order))

    def beside(self, need: Need | None, step: int) -> Need | None:
        """The one `step` places after a need (before it, if negative), past the end the first again.

        Args:
            need: one that waits no more, or None, has no place: its next one is the first, the one before the last.
        """
        order, keys = self.order, list(self._needs)
        if not order:
            return None
        key = key_of(need) if need is not None else None
        if key not in keys:
            return order[0] if step > 0 else order[-1]
        return order[(keys.index(key) + step) % len(order)]
