"""What an agent may not do alone: its owner is asked, and once they have allowed it the post room does it.

An act is an operation of the API with its fields. It is an approval (`events.approvals`) that the post room asks for in
the agent's name, so it outlives every process, and waits once however often it is asked for. When it is settled the act
is done, the agent is told by mail, and the log notes what became of it. A crash before that note has all of it done
again: so an operation that is done twice has to have no second effect.

Who asks for it is not who it is done for ever after: what is asked is kept with uids in the place of nicks, which may
be another's by the time it is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from postroom.control.in_flight import acted_on
from postroom.control.ops.table import Operation
from postroom.errors import (
    CallerError,
    Conflict,
    Forbidden,
    Refused,
    StreamFull,
)
from postroom.events.approvals import ApprovalView, uid_of, views
from postroom.observe import get_logger
from postroom.projection.due import Due
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert
from postroom.protocol.approvals import Decision
from postroom.protocol.content import Content
from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_DETAIL, SHORT_ID
from postroom.protocol.principal import DOOR, KEY, USUAL_SCOPES, Principal, Scope
from postroom.store.agents import Agent
from postroom.store.approvals import ApprovalRow
from postroom.store.database import Store
from postroom.store.events import EventRow
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.control.parts import Parts

log = get_logger(__name__)

WAITS = 7 * 86400.0
"""Seconds that an act waits for its owner; then it counts as denied."""

FAILED = "act-failed"
"""Kind of the alert that something was allowed and cannot be done."""


class AwaitsOwner(Exception):
    """An act waits for the owner of who has asked for it; `shown` is the answer."""

    def __init__(self, shown: shapes.OwnerAsked) -> None:
        super().__init__(shown["text"])
        self.shown = shown


async def by_owner(
    parts: Parts, me: Principal, operation: str, given: Mapping[str, Any], words: str
) -> None:
    """Return if `me` may do this by itself; otherwise ask its owner, and end the request.

    Args:
        operation: its name in the table.
        given: its fields, those of its path too, as they are done later: with uids in the place of nicks.
        words: what it does, for a person: "let @bob send messages to @alice".

    Raises:
        AwaitsOwner: the owner is asked.
        Refused, MessageTooLarge, StateUnwritable, StreamFull, RequestTimeout: as `Approvals.ask_act`.
    """
    if not me.is_free:
        await _ask(parts, me, operation, given, words)


async def _ask(
    parts: Parts, me: Principal, operation: str, given: Mapping[str, Any], words: str
) -> NoReturn:
    view = await parts.approvals.ask_act(me.uid, operation, given, one_line(words), WAITS)
    acted_on(about=view.row.id)
    owner = await parts.database.point(lambda store: owner_of(store, me.uid))
    whom = f"@{owner.nick}" if owner else "who administers"
    shown = view.as_json()
    raise AwaitsOwner(
        {
            "approval": view.row.id,
            "of": owner.party.as_json() if owner else None,
            "text": f"asked {whom}: it counts when they allow it",
            "expires_at": shown["expires_at"],
        }
    )


def owner_of(store: Store, uid: str) -> Agent | None:
    """The person whom an agent belongs to; None where who administers speaks for it."""
    found = store.grants.reached(uid)
    owner = store.agents.agent_by_uid(found.owner) if found is not None and found.owner else None
    return None if owner is None or owner.retired else owner


async def check_owner(parts: Parts, me: Principal, view: ApprovalView, *, allows: bool) -> None:
    """Raise Forbidden unless `me` may answer for the owner of who asks for an act."""
    if me.kind != "human":
        raise Forbidden("people alone answer for an agent")
    owner = await parts.database.point(lambda store: owner_of(store, view.row.worker))
    mine = me.allows(Scope.ADMIN) if owner is None else me.uid == owner.uid
    if allows and not mine:
        whom = f"@{owner.nick}, who owns @{view.worker.nick}," if owner else "who administers"
        raise Forbidden(f"only {whom} may allow this", remedy="deny it")


@dataclass(frozen=True, slots=True)
class Acts:
    """The job that does what was allowed (`projection.due`).

    Args:
        operations: by name.
    """

    parts: Parts
    operations: Mapping[str, Operation]
    clock: Callable[[], float] = time.time

    async def find(self, now: float) -> Due[ApprovalRow]:  # noqa: ARG002 (they are due at once)
        """Settled acts of which the log does not note what became of them."""
        return Due(await self.parts.database.read(lambda store: store.approvals.undone()), None)

    def due_at(self, row: Sequence[EventRow]) -> float | None:
        """Answers of people, and of the clock, are looked at when they come."""
        answers = (event.kind == EventKind.CONTROL_RESPONSE and not event.run for event in row)
        return 0.0 if any(answers) else None

    async def act(self, row: ApprovalRow) -> None:
        """Do it if it was allowed, tell who has asked, and note it."""
        done = row.state is Decision.ALLOWED
        text = "done" if done else f"not done: {row.state.value}"
        if done:
            try:
                await self._do(row)
            except StreamFull:
                raise
            except (CallerError, Refused) as error:
                done, text = False, f"it cannot be done: {one_line(error.message, MAX_DETAIL)}"
                await self.parts.alerts.raise_alert(
                    Alert(FAILED, f"{_title(row)}: {text}", row.worker, row.id)
                )
        if row.state is not Decision.WITHDRAWN:  # nobody is there who has asked
            await self._tell(row, text)
        event = {"type": EventKind.ACTED.value, "request": row.id, "done": done, "text": text}
        await self.parts.events.append(row.worker, [event])

    async def _do(self, row: ApprovalRow) -> None:
        """Do an act as who has asked for it. Raises PostroomError as its operation does."""
        operation = self.operations.get(row.request["tool"])
        if operation is None:
            raise Conflict(f"this post room has no {row.request['tool']!r}")
        given = dict(row.request["input"])
        values: dict[str, Any] = {name: given.pop(name) for name in operation.places.values()}
        if operation.body is not None:
            values[operation.body.name] = operation.body.checked(given)
        else:
            values |= operation.checked(given)
        asker = await self.parts.directory.get(row.worker)
        known: dict[str, Any] = {"parts": self.parts, "me": _principal(asker)}
        await operation.call(**values, **{name: known[name] for name in operation.given})

    async def _tell(self, row: ApprovalRow, text: str) -> None:
        """Send who has asked a message, from who has answered or else from its owner."""
        by = uid_of(row.response)
        owner = await self.parts.database.point(lambda store: owner_of(store, row.worker))
        sender = by or (owner or self.parts.owner).uid
        (view,) = await self.parts.database.read(lambda store: views(store, [row]))
        answer = view.as_json()["answer"]
        why = f" ({one_line(answer['reason'], MAX_DETAIL)})" if answer and answer["reason"] else ""
        said = f"You asked: {_title(row)}. It was {row.state.value}{why}; {text}."
        try:
            await self.parts.office.send(
                sender,
                row.worker,
                Content(({"text": said},), f"{row.state.value}: {row.request['tool']}"),
                expects_reply=False,
                key=f"act\0{row.id}",
                folded=False,
                removed=True,
            )
        except (StreamFull, CallerError) as error:  # the approval says it, too
            log.warning("%s was not told of %s: %s", row.worker, row.id[:SHORT_ID], error)


def _title(row: ApprovalRow) -> str:
    return one_line(str(row.request.get("title")), MAX_DETAIL)


def _principal(agent: Agent) -> Principal:
    """An agent, free to do what its owner has allowed."""
    scopes, method = USUAL_SCOPES | {Scope.GRANT}, DOOR if agent.kind == "worker" else KEY
    return Principal(agent.uid, agent.org, agent.nick, agent.kind, scopes, method)
