"""Carries messages between the organisations of a post room, and what becomes of them back.

Each organisation has its own half of a conversation in its own log. A message to an agent of another organisation is
taken into the log of its sender's like any other; that is its acceptance. The relay of that organisation then stores
the same envelope, under the same id, in the log of the recipient's, and appends what that log says of it (delivered,
seen, dead) to its own. Whether a message is answered each organisation finds in its own log, since the reply is carried
like any message.

What is still to be done is what the two databases differ in, so a crash loses nothing and nothing is noted twice: a
message that is open here and not there is carried, and one that has come further there is reported here. The lane of a
recipient keeps the order of its messages. A fault holds up its lane alone; it goes on when that has passed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from postroom.bus.port import BusAdmin, MessageBusProvider
from postroom.directory.grants import Decisions, GrantScope, reach
from postroom.errors import (
    EnvironmentFault,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    NotLetIn,
    PostroomError,
    StreamFull,
    TooManyRequests,
    UnknownRecipient,
)
from postroom.mail.clerk import Clerk
from postroom.mail.limits import PairLimits
from postroom.observe import get_logger
from postroom.projection.changes import Change
from postroom.projection.following import MOST, After
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.blobs import PREFIX, named_in
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import Reason, State, advance
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.schema import SET_ASIDE
from postroom.webhooks.lanes import Lane, Lanes
from postroom_a2a.retry import Backoff

log = get_logger(__name__)

TOGETHER = 64
"""Messages to one recipient that are compared with one query."""

FIRST_RETRY, LAST_RETRY = 0.2, 30.0
"""Seconds of the first and of the longest pause of what is held up."""

PATIENCE = 20.0
"""Seconds that messages to one recipient are held up before people are told."""

HELD_UP = "mail-held-up"
"""Kind of that alert; its `about` is the organisation that is not open, or the recipient's uid."""

ALTERED = f"{Reason.MALFORMED.value}: it is not as it was stored"
"""Why a message goes nowhere that somebody has changed in the database."""

Files = Callable[[Sequence[str], str, str], Awaitable[None]]
"""Copies the blobs with these hashes to an organisation, as far as an agent may pass them on; it reads them there."""


async def no_files(_hashes: Sequence[str], _sender: str, _org: str) -> None:
    """Copies nothing."""


@dataclass(slots=True)
class _Waiting:
    """What is to be looked at of the messages to one recipient.

    Attributes:
        keys: their senders and ids, in their order.
        everything: all open messages are, whatever waits.
        since: when a fault began to hold it up, 0 for none; `until`: when it is tried again.
        told: what the alert is about, "" for none.
    """

    keys: dict[tuple[str, str], None] = field(default_factory=dict)
    everything: bool = False
    pauses: Backoff = field(default_factory=lambda: Backoff(FIRST_RETRY, LAST_RETRY))
    since: float = 0.0
    until: float = 0.0
    told: str = ""


class Relay:
    """The relay of one organisation.

    Args:
        limits: of pairs; by default none.
        neighbours: the relays of all open organisations by name; this one is there from `open` to `close`.
        alert: raises an alert in this organisation.

    Attributes:
        files: set once there are blobs.
    """

    def __init__(
        self,
        org: str,
        bus: MessageBusProvider,
        admin: BusAdmin,
        database: Database,
        clerk: Clerk,
        alert: RaiseAlert,
        neighbours: dict[str, Relay],
        decisions: Decisions,
        clock: Callable[[], float] = time.time,
        limits: PairLimits | None = None,
    ) -> None:
        self.org = org
        self.files: Files = no_files
        self._bus = bus
        self._admin = admin
        self._database = database
        self._clerk = clerk
        self._alert = alert
        self._neighbours = neighbours
        self._decisions = decisions
        self._clock = clock
        self._limits = limits or PairLimits()
        # Messages of workers that have counted for the limits, and are not stored there yet.
        self._counted: set[tuple[str, str]] = set()
        self._waiting: dict[str, _Waiting] = {}
        self._lanes = Lanes(self._step, clock)
        # Agents of other organisations whose messages came here, each with the relay that wants to hear of them.
        self._guests: dict[str, Relay] = {}
        clerk.elsewhere = self.take

    @property
    def after(self) -> After:
        """What follows the fold: the other organisations hear what became of their messages."""
        return After(self._find, self._tell, self._tell_all)

    def open(self) -> None:
        """Let the other organisations send to this one; what waits for it goes on."""
        self._neighbours[self.org] = self
        for other in self._neighbours.values():
            other.hurry()

    def close(self) -> None:
        """Take nothing from others from now on."""
        if self._neighbours.get(self.org) is self:
            del self._neighbours[self.org]

    async def run(self) -> None:
        """Carry until cancelled."""
        await self._alert(Alert(HELD_UP, ""))  # of an earlier process; what still is, is told again
        await self._lanes.run()

    # ── what is to be done ──────────────────────────────────────────────────────────────────────────────

    def take(self, row: MessageRow) -> None:
        """Look at an open message whose recipient is not of this organisation."""
        waiting = self._waiting.setdefault(row.recipient, _Waiting())
        waiting.keys[row.sender, row.id] = None
        if len(waiting.keys) > MOST:
            waiting.keys.clear()
            waiting.everything = True
        self._wake(row.recipient, waiting.until)

    async def look_at(self, org: str) -> None:
        """Look at all open messages to the agents of an organisation."""
        after = 0
        while rows := await self._database.read(
            lambda store, after=after: store.pending.open_to_org(org, after)
        ):
            for row in rows:
                self.take(row)
            after = rows[-1].seq

    def hurry(self) -> None:
        """Try again at once what is held up."""
        for uid in self._waiting:
            self._wake(uid)

    def _wake(self, uid: str, at: float = 0.0) -> None:
        self._lanes.wake(Lane(uid, self.org, uid), at)

    def _find(self, _: Store, changes: Sequence[Change]) -> list[MessageRow]:
        guests = self._guests
        return [
            change.row
            for change in changes
            if change.kind in ("mail", "receipt")
            and change.row.sender in guests
            and change.row.state != State.ACCEPTED.value
        ]

    async def _tell(self, found: Sequence[MessageRow]) -> None:
        for row in found:
            self._guests[row.sender].take(row)

    async def _tell_all(self) -> None:
        """After a start others may wait for news of what was folded in it."""
        for other in list(self._neighbours.values()):
            if other is not self:
                await other.look_at(self.org)

    # ── doing it ────────────────────────────────────────────────────────────────────────────────────────

    async def _step(self, lane: Lane) -> float | None:
        uid, waiting = lane.key, self._waiting.get(lane.key)
        if waiting is None:  # it was woken twice
            return None
        everything, waiting.everything = waiting.everything, False
        # Taken out first: what is heard of them meanwhile is looked at once more.
        keys = [] if everything else list(waiting.keys)[:TOGETHER]
        for key in keys:
            del waiting.keys[key]
        try:
            await (self._all(uid) if everything else self._some(uid, keys))
        except BaseException as error:
            waiting.everything |= everything
            waiting.keys = dict.fromkeys(keys) | waiting.keys
            if not isinstance(error, PostroomError):
                raise
            return await self._held_up(uid, waiting, error)
        await self._goes_on(waiting)
        if waiting.everything or waiting.keys:
            return 0.0
        del self._waiting[uid]
        return None

    async def _all(self, uid: str) -> None:
        after = 0
        while rows := await self._database.read(
            lambda store, after=after: store.pending.open_to(uid, after, TOGETHER)
        ):
            await self._bring(uid, rows)
            after = rows[-1].seq

    async def _some(self, uid: str, keys: Sequence[tuple[str, str]]) -> None:
        def find(store: Store) -> list[MessageRow]:
            found = [store.messages.message_of(*key) for key in keys]
            return [row for row in found if row is not None and not row.final]

        await self._bring(uid, await self._database.point(find))

    async def _bring(self, uid: str, rows: Sequence[MessageRow]) -> None:
        """Have each of these messages to `uid` at the recipient's organisation, and here what has become of it."""
        to = await self._database.point(lambda store: store.agents.anywhere(uid))
        other = self._neighbours.get(to.org) if to is not None else None
        if other is not None:
            # Before it is asked, so that what changes meanwhile is heard of.
            other._guests |= dict.fromkeys((row.sender for row in rows), self)  # noqa: SLF001
        ids = {row.id for row in rows}
        # Of an agent that does not exist the same is asked, so that no worker can tell it from one of others.
        where = self if other is None else other
        found = await where._database.point(lambda store: store.messages.named_to(uid, ids))  # noqa: SLF001
        there = {(row.sender, row.id): row for row in found} if other is not None else {}
        for row in rows:
            known = there.get((row.sender, row.id))
            if known is None:
                await self._carry(row, to, other)
            else:
                await self._report(row, known)

    async def _report(self, row: MessageRow, known: MessageRow) -> None:
        """Append what has become of a message there, if that is more than is known here."""
        state = State(known.state)
        if state is State.ANSWERED:
            state = State.SEEN  # its answer is on its way, and its fold says so
        now = State(row.state)
        new = advance(now, state, expects_reply=row.expects_reply)
        if new is not now or (new is state and known.reason and not row.reason):
            await self._clerk.report(row, state, known.reason)

    async def _carry(self, row: MessageRow, to: Agent | None, other: Relay | None) -> None:
        with self._decisions.taking():
            let_in = await self._database.point(lambda store: _let_in(store, self.org, row))
            why = ALTERED if row.altered else _hopeless(row, to, self._clock(), let_in=let_in)
            if to is None or why:
                await self._clerk.report(row, State.DEAD, why)
                return
            if other is None:
                raise EnvironmentFault(f"the organisation {to.org!r} is not open")
            if why := await self._too_much(row):
                await self._clerk.report(row, State.DEAD, why)
                return
            await other.check_room(row.recipient)
            try:
                if PREFIX in row.message:
                    await self.files(named_in(json.loads(row.message)), row.sender, to.org)
                await other.store(row)
            except (InvalidInput, MessageTooLarge) as error:  # for ever
                why = f"{Reason.UNDELIVERABLE.value}: {error.message}"
                await self._clerk.report(row, State.DEAD, why)
            self._counted.discard((row.sender, row.id))

    async def _too_much(self, row: MessageRow) -> str:
        """Why a message is over the limits of its pair, "" where it is not.

        Who sends by the API was told so before the message was taken. A worker stores it itself.
        """
        sender = await self._database.point(lambda store: store.agents.agent_by_uid(row.sender))
        if (row.sender, row.id) in self._counted or sender is None or sender.kind != "worker":
            return ""
        try:
            self._limits.take(row.sender, row.recipient, len(row.message))
        except (MessageTooLarge, TooManyRequests) as error:
            return f"{Reason.REFUSED.value}: {error.message}; {error.remedy}"
        self._counted.add((row.sender, row.id))
        return ""

    async def check_room(self, recipient: str) -> None:
        """Check that not too much waits for an agent of this organisation.

        Raises:
            TooManyRequests: it has to read something first.
        """
        await self._database.point(lambda store: self._limits.check_room(store, recipient))

    async def store(self, row: MessageRow) -> None:
        """Store a message of another organisation in the log of this one."""
        subject = subjects.inbox(row.recipient, row.sender)
        payload = Envelope(
            id=row.id,
            to=row.recipient,
            message=json.loads(row.message),
            sent_at=row.sent_at,
            expects_reply=row.expects_reply,
            reply_to=row.reply_to,
            expires_at=row.expires_at,
            requeue_of=row.requeue_of,
        ).encode()
        stored = await self._bus.publish(subject, payload, id=row.id)
        if stored is not None and stored.duplicate:
            with suppress(NotFound):  # deleted since, so it was folded
                record = await self._admin.get(stored.stream, stored.sequence)
                if record.subject != subject:
                    # Somebody has used the id to hold the message back; the fold takes each message once.
                    await self._bus.publish(subject, payload)

    # ── held up ─────────────────────────────────────────────────────────────────────────────────────────

    async def _held_up(self, uid: str, waiting: _Waiting, error: PostroomError) -> float:
        log.warning("mail to %s waits: %s", uid, error)
        now = self._clock()
        waiting.since = waiting.since or now
        waiting.until = now + waiting.pauses.next()
        if not waiting.told and now - waiting.since >= PATIENCE:
            await self._tell_people(uid, waiting, error)
        return waiting.until

    async def _tell_people(self, uid: str, waiting: _Waiting, error: PostroomError) -> None:
        to = await self._database.point(lambda store: store.agents.anywhere(uid))
        org = to.org if to is not None else ""
        waiting.told = uid if org in self._neighbours else org
        name = f"@{to.nick}.{org}" if to is not None else uid
        what = f"mail to {name if waiting.told == uid else f'the organisation {org}'} waits"
        why = "its inbox is full" if isinstance(error, StreamFull) else str(error)
        text = f"{what}, and is sent on by itself: {why}"
        await self._alert(Alert(HELD_UP, text, about=waiting.told))

    async def _goes_on(self, waiting: _Waiting) -> None:
        waiting.pauses.reset()
        waiting.since = waiting.until = 0.0
        if waiting.told:
            about, waiting.told = waiting.told, ""
            await self._alert(Alert(HELD_UP, "", about=about))


def _hopeless(row: MessageRow, to: Agent | None, now: float, *, let_in: bool) -> str:
    """Why a message can go nowhere, "" where it can."""
    if not let_in:
        return Reason.NO_SUCH_RECIPIENT.value
    if to is None or SET_ASIDE in to.org:  # its organisation was removed
        return Reason.RETIRED.value
    return Reason.EXPIRED.value if row.expires_at and row.expires_at <= now else ""


def _let_in(store: Store, org: str, row: MessageRow) -> bool:
    """Whether a message may go to another organisation.

    Who sends by the API was let in before the message was taken. A worker, and nobody else, has a credential of the bus
    and stores it itself: what counts is whether its recipient had let it in when it was stored.
    """
    sender = store.agents.agent_by_uid(row.sender)
    by_api = sender is not None and sender.kind != "worker"
    try:
        asked = store.messages.message_of(row.recipient, row.reply_to)
        asker = row.recipient if asked is not None and asked.recipient == row.sender else ""
        scope, at = GrantScope.MESSAGE, row.stored_at
        reach(store, org, row.sender, row.recipient, scope, at, asker=asker)
    except (NotLetIn, UnknownRecipient):
        return by_api
    return by_api or not row.requests
