"""Approvals: showing them to people, answering them once, and what a worker's sidecar or a session is told.

Nothing but the log decides which answer is the first: an answer is appended, and then the fold says whether it settled
the approval or came too late. So it holds for several control planes, and after a SIGKILL of any of them. What an agent
asks is its own word: bounded here, made harmless where it is shown.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from postroom.errors import (
    Conflict,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    Refused,
    RequestTimeout,
)
from postroom.events.service import Appended, EventLog
from postroom.projection.changes import Change, Changes, of_worker_events
from postroom.projection.fold import Fold
from postroom.protocol import shapes
from postroom.protocol.approvals import (
    ACT,
    AGENT,
    DEFAULTS,
    NO_ANSWER,
    PEOPLE_CHANNELS,
    REQUEST_ID,
    Decision,
    check_editable,
)
from postroom.protocol.event_bounds import CUT, encoded
from postroom.protocol.events import EventKind
from postroom.protocol.ids import ID_PREFIX, MAX_CANDIDATES, only_one
from postroom.protocol.limits import MAX_EDITED_BYTES, MAX_PAGE, MAX_PENDING_APPROVALS, SHORT_ID
from postroom.store.agents import Party
from postroom.store.approvals import AnswerRow, ApprovalRow, SaidRow
from postroom.store.database import Database, Store
from postroom_a2a import strict_json
from postroom_a2a.times import format_time

FOLDED = 10.0
"""Seconds that an answer waits until the fold says whether it was the first."""

Permit = Callable[[], Awaitable[None]]
"""Raises an error where a person may not decide: asked once the approval is known to be pending."""

KINDS = ("tool", "question")
"""What an agent asks for: that a tool may do something, or words."""


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """An approval, its worker, and all answers to it, oldest first.

    Attributes:
        people: who answered, by uid.
        late: answers that came when it was settled.
        became: of a settled act: what became of it, as an event `acted`.
    """

    row: ApprovalRow
    worker: Party
    people: Mapping[str, Party]
    late: Sequence[AnswerRow] = ()
    became: Mapping[str, Any] | None = None

    def as_json(self) -> shapes.Approval:
        """Shape of the API."""
        row, asked = self.row, self.row.request
        kind = ACT if row.is_act else _text(asked, "kind")
        shown: shapes.Approval = {
            "id": row.id,
            "seq": row.seq,
            "state": row.state.value,
            "worker": self.worker.as_json(),
            "task": row.task or None,
            "message": row.message or None,
            "kind": kind if kind in KINDS or row.is_act else KINDS[0],
            "tool": _text(asked, "tool"),
            "title": _text(asked, "title"),
            "input": _object(asked) or {},
            "editable": asked.get("fixed") is not True,
            "reason": _text(asked, "reason"),
            "default": default_of(row),
            "asked_at": format_time(row.asked_at),
            "expires_at": None if row.expires_at is None else format_time(row.expires_at),
            "answer": self._answer(row.settled, row.response, row.answered_at),
            "late": [
                said
                for each in self.late
                if (said := self._answer(each.id, json.loads(each.event), each.at)) is not None
            ],
        }
        if self.became is not None:
            shown["became"] = {
                "done": self.became.get("done") is True,
                "text": _text(self.became, "text"),
            }
        return shown

    def _answer(
        self,
        event: int,
        said: Mapping[str, Any],
        at: float | None,
    ) -> shapes.ApprovalAnswer | None:
        if not event or not said or at is None:
            return None
        return {
            "id": event,
            "at": format_time(at),
            "decision": _text(said, "decision"),
            "by": self._party(uid_of(said)),
            "channel": _text(said, "channel"),
            "reason": _text(said, "reason") or _said_by(said, "rule"),
            "input": _object(said),
        }

    def _party(self, uid: str) -> shapes.Party | None:
        found = self.people.get(uid)
        return None if found is None else found.as_json()


def views(store: Store, rows: Sequence[ApprovalRow]) -> list[ApprovalView]:
    """Views of `rows`, in their order."""
    # What the clock or the control plane said twice, as after a crash, is nobody's answer.
    late = [each for each in store.approvals.late(rows) if uid_of(json.loads(each.event))]
    said = [*(row.response for row in rows), *(json.loads(each.event) for each in late)]
    people = {uid_of(each) for each in said} - {""}
    known = store.agents.parties({*people, *(row.worker for row in rows)})
    became = store.approvals.outcomes(rows)
    return [
        ApprovalView(
            row,
            known[row.worker],
            known,
            [each for each in late if (each.worker, each.request) == (row.worker, row.id)],
            became.get((row.worker, row.id)),
        )
        for row in rows
    ]


def concerned(store: Store, uid: str) -> set[str]:
    """The agents whose approvals concern one: itself, and those that it owns."""
    return {uid, *store.grants.owned(uid)}


def uid_of(said: Mapping[str, Any]) -> str:
    """The uid of the person who answered, "" where none did: what a sidecar reports can name nobody."""
    return _said_by(said, "uid") if said.get("channel") in PEOPLE_CHANNELS else ""


def _said_by(said: Mapping[str, Any], key: str) -> str:
    who = said.get("by")
    value = who.get(key) if isinstance(who, dict) else None
    return value if isinstance(value, str) else ""


def default_of(row: ApprovalRow) -> str:
    """What it counts as when it expires."""
    said = row.request.get("default")
    return said if said in (*DEFAULTS, NO_ANSWER) else DEFAULTS[0]


def outcome(view: ApprovalView) -> str:
    """How it was settled, as a sentence's end: `allowed by @maria at 12:00 over cli`."""
    shown = view.as_json()
    answer = shown["answer"]
    if answer is None:
        return shown["state"]
    by = f" by @{answer['by']['nick']}" if answer["by"] else ""
    why = f" ({answer['reason']})" if answer["reason"] else ""
    said = shown["state"] if shown["state"] != Decision.EXPIRED else "expired unanswered"
    return f"{said}{by} over {answer['channel']} at {answer['at']}{why}"


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    return value if isinstance(value, str) else ""


def _object(said: Mapping[str, Any]) -> dict[str, Any] | None:
    value = said.get("input")
    return value if isinstance(value, dict) else None


async def _anybody() -> None:
    """Permits everybody."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says to an approval.

    Attributes:
        by: uid and nick of the principal, never of the request's body.
        input: in place of the tool's; only with `Decision.EDITED`.
    """

    decision: Decision
    by: Party
    channel: str
    reason: str = ""
    input: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Raise InvalidInput or MessageTooLarge where it cannot be stored."""
        if (self.decision is Decision.EDITED) != (self.input is not None):
            raise InvalidInput("`input` is given with the decision `edited`, and with no other")
        if self.input is None:
            return
        try:
            size = len(strict_json.dumps(self.input))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"the input has no form in JSON: {error}") from error
        if size > MAX_EDITED_BYTES:
            raise MessageTooLarge(f"the input is over {MAX_EDITED_BYTES} bytes")

    def event(self, row: ApprovalRow) -> dict[str, Any]:
        """The event that stores it."""
        said = control_response(row, self.decision, self.channel, self.reason)
        said["by"] = _by(self.by)
        return said if self.input is None else said | {"input": dict(self.input)}


class Approvals:
    """The approvals of one organisation.

    Args:
        log: appends events.
        fold: says when they are folded.
    """

    def __init__(
        self,
        log: EventLog,
        database: Database,
        changes: Changes,
        fold: Fold,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._database = database
        self._changes = changes
        self._fold = fold
        self._clock = clock

    # ── reading ──

    async def listed(
        self,
        *,
        worker: str = "",
        pending: bool = True,
        limit: int = MAX_PAGE,
        before: int = 0,
        only: str = "",
    ) -> list[ApprovalView]:
        """The newest approvals, newest first, asked for by events before `before` (0 for all).

        Args:
            only: the uid whose own, and whose agents', alone are looked at; "" for all.
        """

        def find(store: Store) -> list[ApprovalView]:
            of = concerned(store, only) if only else None
            rows = store.approvals.newest(
                limit, before=before, worker=worker, of=of, pending=pending
            )
            return views(store, rows)

        return await self._database.read(find)

    async def waiting(self, limit: int, only: str = "") -> list[ApprovalView]:
        """The first pending approvals, oldest first; `only` is as for `listed`."""

        def find(store: Store) -> list[ApprovalView]:
            if only:
                of = concerned(store, only)
                return views(store, store.approvals.newest(limit, of=of, pending=True)[::-1])
            return views(store, store.approvals.pending_past(0)[:limit])

        return await self._database.read(find)

    async def get(self, ref: str, worker: str = "", only: str = "") -> ApprovalView:
        """The approval with that id, or with an id that begins with those four or more digits.

        Args:
            worker: uid of the only worker whose approvals are looked at; "" for all.
            only: as for `listed`.

        Raises:
            NotFound: there is none.
            Conflict: several ids begin so, or two workers use the same.
        """

        def find(store: Store) -> ApprovalView | None:
            named = store.approvals.named(ref, MAX_CANDIDATES + 1, worker)
            if only:
                of = concerned(store, only)
                named = [row for row in named if row.worker in of]
            # As short as people see ids, it is the beginning of one, whatever else is called so: a worker chooses its
            # ids, and could take the beginning of one that a person is about to answer.
            exact = [row for row in named if row.id == ref and len(ref) > SHORT_ID]
            found = exact or named
            if len({row.id for row in found}) < len(found):
                raise Conflict(
                    f"several workers have an approval {ref}", remedy="name the worker, too"
                )
            only_one(ref, [row.id for row in found], "approvals")
            return views(store, found)[0] if found else None

        fits = ID_PREFIX.fullmatch(ref) or REQUEST_ID.fullmatch(ref)
        view = await self._database.read(find) if fits else None
        if view is None:
            raise NotFound(f"there is no approval {ref!r}", remedy="postroom approvals")
        return view

    # ── what a session asks ──

    async def ask(
        self, asker: str, request: str, tool: str, given: Mapping[str, Any], seconds: float
    ) -> ApprovalView:
        """Ask people whether the session `asker` may use a tool; a second call with the same id changes nothing.

        Args:
            seconds: after which it expires.

        Raises:
            Refused: too many wait, or it has asked too much of late.
            MessageTooLarge: people could not be shown all of it.
            InvalidInput, StateUnwritable, StreamFull: it cannot be stored; nothing was.
            RequestTimeout, BusDisconnected: perhaps stored; ask again with the same id.
        """
        event = {
            "type": EventKind.CONTROL_REQUEST.value,
            "request": request,
            "kind": KINDS[0],
            "tool": tool,
            "input": given,
            "default": NO_ANSWER,
            "fixed": True,
            "expires_at": format_time(self._clock() + seconds),
        }
        if CUT in json.loads(encoded(event)):
            raise MessageTooLarge("what is asked cannot be shown whole")
        await self._said_by_asker(asker, request, event, 1)
        view = await self._of(asker, request)
        if view is None:
            raise Refused("too many approvals of this session wait", remedy="answer some")
        return view

    # ── what the post room asks in an agent's name ──

    async def ask_act(
        self, asker: str, operation: str, given: Mapping[str, Any], words: str, seconds: float
    ) -> ApprovalView:
        """Ask the owner of `asker` whether an operation is done for it; one that waits already is that one.

        Args:
            given: the fields of the operation, in JSON.
            words: what it does, for a person.
            seconds: after which it counts as denied.

        Raises:
            Refused: too many approvals of `asker` wait.
            MessageTooLarge: people could not be shown all of it.
            InvalidInput, StateUnwritable, StreamFull: it cannot be stored; nothing was.
            RequestTimeout, BusDisconnected: perhaps stored; ask again.
        """
        request = secrets.token_hex(16)
        event = {
            "type": EventKind.CONTROL_REQUEST.value,
            "request": request,
            "kind": ACT,
            "tool": operation,
            "title": words,
            "input": given,
            "default": DEFAULTS[0],
            "fixed": True,
            "expires_at": format_time(self._clock() + seconds),
        }
        text = encoded(event)
        if CUT in json.loads(text):
            raise MessageTooLarge("what is asked cannot be shown whole")
        given = json.loads(text)["input"]  # as it is stored

        def find(store: Store) -> tuple[ApprovalView | None, bool]:
            row = store.approvals.act(asker, operation, given) or store.approvals.of(asker, request)
            full = store.approvals.count_pending_of(asker) >= MAX_PENDING_APPROVALS
            return (None if row is None else views(store, [row])[0]), full

        view, full = await self._database.read(find)
        if view is None and not full:
            await self._stored(await self._log.append(asker, [event]))
            view, _ = await self._database.read(find)
        if view is None:
            raise Refused("too many approvals of this agent wait", remedy="have some answered")
        return view

    async def withdraw(self, asker: str, request: str, reason: str) -> ApprovalView:
        """A session asks no longer; what is settled stays so. Raises what `ask` raises, and NotFound."""
        view = await self.get(request, asker)
        if view.row.pending:
            event = control_response(view.row, Decision.WITHDRAWN, AGENT, reason)
            await self._said_by_asker(asker, view.row.id, event, 2)
        return await self._now(view)

    async def settled(self, asker: str, request: str, wait: float) -> ApprovalView:
        """An approval of a session once it is settled; as it is after `wait` seconds. Raises NotFound, Refused."""
        view = await self.get(request, asker)
        return await self._changes.until(
            of_worker_events(asker), lambda: self._now(view), lambda now: not now.row.pending, wait
        )

    async def _said_by_asker(
        self, asker: str, request: str, event: Mapping[str, Any], number: int
    ) -> None:
        """Append what a session says: its approval is a run of its own, so the same number counts once."""
        await self._stored(await self._log.append(asker, [event], request, number))

    async def _stored(self, stored: Appended) -> None:
        """Return when an event is folded."""
        try:
            await self._fold.reached("EVENTS", stored.at, FOLDED)
        except TimeoutError as error:
            raise RequestTimeout("it is stored, and not known yet", remedy="call again") from error

    # ── what people say ──

    async def answer(
        self, worker: str, ref: str, answer: Answer, permit: Permit = _anybody
    ) -> ApprovalView:
        """Answer a pending approval of `worker`; on return the answer is on disk and has settled it.

        Raises:
            NotFound: the worker has no such approval.
            Conflict: it is settled: by whom, when and how is said.
            InvalidInput, MessageTooLarge: it cannot be stored, or the agent takes no edited input.
            StateUnwritable, StreamFull: there is no room; nothing was stored.
            RequestTimeout: perhaps stored, or stored and not known to be the first; look at the approval.
        """
        answer.check()
        view = await self.get(ref, worker)
        self._check_pending(view)
        if answer.decision is Decision.EDITED:
            check_editable(view.as_json())
        await permit()
        stored = await self._log.append(view.row.worker, [answer.event(view.row)])
        try:
            await self._fold.reached("EVENTS", stored.at, FOLDED)
        except TimeoutError as error:
            raise RequestTimeout(
                "the answer is stored, but whether it was the first is not known yet",
                remedy=f"postroom approvals {view.row.id}",
            ) from error
        now = await self._now(view)
        if now.row.settled != stored.ids[0]:
            raise _settled(now)
        return now

    async def _now(self, view: ApprovalView) -> ApprovalView:
        """The same approval as it is now."""
        return await self._of(view.row.worker, view.row.id) or view

    async def _of(self, worker: str, request: str) -> ApprovalView | None:
        def find(store: Store) -> ApprovalView | None:
            row = store.approvals.of(worker, request)
            return None if row is None else views(store, [row])[0]

        return await self._database.read(find)

    async def settle(
        self, worker: str, judge: Callable[[ApprovalView], bool], answer: Answer
    ) -> list[str]:
        """Give what waits of a worker an answer, where `judge` says so; what somebody settles meanwhile stays so.

        Returns:
            The ids of what it has answered, oldest first.
        """
        done = []
        for view in reversed(await self.listed(worker=worker)):
            asks = view.row.is_act or view.row.request.get("kind") == "question"
            if not asks and judge(view):
                with suppress(Conflict, NotFound):
                    done.append((await self.answer(worker, view.row.id, answer)).row.id)
        return done

    async def interrupt(
        self, worker: Party, by: Party, channel: str, reason: str = ""
    ) -> shapes.Interrupt:
        """Tell the sidecar of `worker` to end the agent's turn; on return that is on disk."""
        event: dict[str, Any] = {
            "type": EventKind.INTERRUPT.value,
            "by": _by(by),
            "channel": channel,
            "reason": reason,
        }
        stored = await self._log.append(worker.uid, [event])
        return {
            "id": stored.ids[0],
            "at": format_time(self._clock()),
            "worker": worker.as_json(),
            "by": by.as_json(),
            "channel": channel,
            "reason": reason,
        }

    def _check_pending(self, view: ApprovalView) -> None:
        if not view.row.pending:
            raise _settled(view)
        expires_at = view.row.expires_at
        if expires_at is not None and expires_at <= self._clock():
            # Its sidecar counts the same seconds, and may have told the agent so already.
            raise Conflict(f"the approval {view.row.id} expired at {format_time(expires_at)}")

    # ── what a sidecar hears ──

    async def said_to(self, worker: str, after: int, wait: float) -> list[SaidRow]:
        """What was said to the sidecar of `worker` past the event `after`, oldest first; waits for the first.

        Raises:
            Refused: too many wait.
        """

        async def read() -> list[SaidRow]:
            return await self._database.read(
                lambda store: store.approvals.said_to(worker, after, MAX_PAGE)
            )

        topic = of_worker_events(worker)
        return await self._changes.until(topic, read, bool, wait, only=_of_control_plane)


def control_response(
    row: ApprovalRow, decision: Decision, channel: str, reason: str
) -> dict[str, Any]:
    """An event that settles an approval; whoever decided is in `by`, which is {} here."""
    said: dict[str, Any] = {
        "type": EventKind.CONTROL_RESPONSE.value,
        "request": row.id,
        "decision": decision.value,
        "by": {},
        "channel": channel,
    }
    more = {"reason": reason, "task": row.task, "message": row.message}
    return said | {key: value for key, value in more.items() if value}


def record(row: SaidRow, policy: Mapping[str, Any] | None = None) -> shapes.ControlRecord:
    """What a sidecar is given; shape of the API.

    Args:
        policy: what people have added (`Policies.told`), for the last record of the policy.
    """
    said = json.loads(row.event) | (policy or {})
    return said | {"id": row.id, "at": format_time(row.at), "type": row.kind}


def _of_control_plane(change: Change) -> bool:
    """Whether events are the control plane's own: agents report many, which no sidecar waits for."""
    return bool(change.row) and not change.row[0].run


def _by(who: Party) -> dict[str, str]:
    return {"uid": who.uid, "nick": who.nick}


def _settled(view: ApprovalView) -> Conflict:
    return Conflict(f"the approval {view.row.id} is settled: {outcome(view)}")
