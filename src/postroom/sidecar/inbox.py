"""Messages to the agent, from the log to the agent's confirmation.

Nothing is queued here: one delivery at a time waits for the agent, and what was handed over is held until it is
confirmed, at most `WINDOW` at once. The bus sends in-progress beats for all of them until they are answered.

1. A delivery that was confirmed before (the journal knows) is acknowledged again and not handed over.
2. A message is written to the journal, then handed over: a second handing is known as one, whatever was killed. It
   happens alone, so that a message that kills its reader uses up its own handings and nobody else's.
3. Not confirmed within its patience: its sender and people are told, and the next one is handed over. It stays in
   the agent's hands, which may still confirm it.
4. Confirmed: written to the journal, then the receipt, then the acknowledgement. A kill in between repeats
   what comes after the journal and never the hand-over.
5. The agent's run ends: what it held is given back. What was lost `MAX_DELIVER` times with its reader is refused and
   becomes a dead letter; the journal counts, since the server also counts what was given back on purpose.

A request for a task is not handed over here: it goes to the engine (`a2a.engine`), and is done with when its first
record is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.bus.port import Delivery
from postroom.errors import NotFound, PostroomError, ProtocolViolation, StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import Reason, State
from postroom.protocol.streams import MAX_DELIVER, redelivery_delay
from postroom.protocol.template import PATIENCE
from postroom.sidecar.adapters import Incoming, Sender
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.directory_client import DirectoryClient
from postroom.sidecar.journal import Journal, Note
from postroom.sidecar.keys import Derivation
from postroom.sidecar.receipts import Confirmations, Receipts
from postroom.sidecar.session import AgentRun
from postroom.sidecar.window import Window
from postroom.tasks.engine import Ask
from postroom_a2a.messages import context_of, text_of
from postroom_a2a.times import format_time

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Held:
    """A message that was handed over and is not confirmed.

    Attributes:
        delivery: the latest one; replaced when the log delivers the message again meanwhile.
        message: as the agent sees it.
        context: A2A context id of the message.
        waited: it was given up waiting for.
        derivation: gives keys to what the agent sends because of it.
    """

    delivery: Delivery
    message: Incoming
    context: str
    waited: bool = False
    derivation: Derivation = field(init=False)

    def __post_init__(self) -> None:
        source = f"{self.message.sender.uid}/{self.message.id}"
        self.derivation = Derivation(source, self.message.redelivered)


class Inbox:
    """The inbox of one worker.

    Args:
        agent: who is handed the messages.
        accept: makes a request a task; returns when its first record is on disk.
        confirm_on_read: a message that the agent read off its input is confirmed; one that expects a reply when
            the agent said something, or after `patience` seconds.
        patience: seconds for which a message that is not confirmed keeps further ones waiting.
        changed: told when the number of held messages changes.
    """

    def __init__(
        self,
        agent: AgentProgram,
        directory: DirectoryClient,
        receipts: Receipts,
        journal: Journal,
        *,
        own: str,
        nick: str,
        accept: Callable[[Ask], Awaitable[None]],
        confirm_on_read: bool,
        patience: float = PATIENCE,
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._agent = agent
        self._directory = directory
        self._receipts = receipts
        self._journal = journal
        self._own = own
        self._nick = nick
        self._accept = accept
        self._confirm_on_read = confirm_on_read
        self._patience = patience
        self._changed = changed
        self._now = now
        self._window: Window[Held] = Window()
        self._left: list[Held] = []
        self.confirmations = Confirmations(self._report, self._start)
        self._tasks: asyncio.TaskGroup | None = None

    # ── what the agent holds ────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> list[Held]:
        """Handed over and not confirmed, oldest first."""
        return list(self._window)

    def unconfirmed(self) -> tuple[str, int]:
        """What was given up waiting for, for people and in number."""
        waited = [held.message for held in self._window if held.waited]
        if not waited:
            return "", 0
        first, more = waited[0], f", nor {len(waited) - 1} more" if len(waited) > 1 else ""
        sender = first.sender.nick or first.sender.uid
        said = f"has not confirmed message {first.id[:8]} from @{sender} for {self._patience:g} s{more}"
        return said, len(waited)

    def find(self, message_id: str) -> Held | None:
        """The held message with this id."""
        return self._window.get(message_id)

    def sender_of(self, message_id: str) -> str:
        """Who sent a message that is held or was confirmed.

        Raises:
            NotFound: there is none with this id.
        """
        held = self._window.get(message_id)
        sender = held.message.sender.uid if held else self._journal.sender(message_id)
        if not sender:
            raise NotFound(f"no message {message_id[:80]!r} was handed to this worker")
        return sender

    # ── deliveries ──────────────────────────────────────────────────────────────────────────────────

    async def take(self, delivery: Delivery) -> None:
        """Handle one delivery; returns when it was handed over, or needs not to be."""
        try:
            envelope = self._opened(delivery)
        except ProtocolViolation as error:
            _log.warning("a malformed message from %s: %s", delivery.message.sender_uid, error)
            await delivery.term(Reason.MALFORMED)
            return
        sender = delivery.message.sender_uid
        if envelope.request is not None:
            # From its first record on the task's own records say what is to be done, not this delivery.
            await self._accept(Ask(envelope.id, sender, envelope.message, envelope.request.skill))
            await delivery.ack()
            return
        if self._journal.confirmed(envelope.id, sender):
            self.confirmations.begin(envelope.id, sender, delivery)
        elif (held := self._window.get(envelope.id)) is not None:
            held.delivery = delivery
            if held.waited:
                delivery.set_aside()
        else:
            await self._hand_over(delivery, envelope)

    def _opened(self, delivery: Delivery) -> Envelope:
        envelope = Envelope.decode(delivery.message.payload)
        if envelope.to != self._own:
            raise ProtocolViolation("it is addressed to someone else")
        held = self._window.get(envelope.id)
        if held is not None and held.message.sender.uid != delivery.message.sender_uid:
            raise ProtocolViolation("its id is that of somebody else's message")
        return envelope

    async def _hand_over(self, delivery: Delivery, envelope: Envelope) -> None:
        sender_uid = delivery.message.sender_uid
        note = self._journal.note(envelope.id, sender_uid)
        if note is not None and note.losses >= MAX_DELIVER:
            await delivery.term(f"{note.losses} attempts")
            return
        again = delivery.attempt > 1 or note is not None
        waited = note is not None and note.waited
        await self._window.room(alone=again and not waited)
        sender = await self._directory.describe(sender_uid)
        try:
            session = await self._ready(envelope, sender_uid, note or Note())
        except AgentGone:
            await delivery.nak(redelivery_delay(delivery.attempt))
            return
        if session is None:
            await delivery.ack()  # the post office declares it dead
            return
        # Nothing is awaited from `_ready` to `add`: the run that ends next will give it back.
        held = Held(delivery, self._incoming(envelope, sender, again), context_of(envelope.message))
        self._window.add(envelope.id, held, alone=again)
        if waited:
            self._set_aside(held)
        self._changed()
        try:
            await session.hand_over(held.message)
        except BrokenPipeError:
            # `gone` gives it back when the run has ended; an agent that closed its input may still confirm.
            while self._window.get(envelope.id) is held:
                await self._window.change()
            return
        if self._window.get(envelope.id) is not held:
            return  # confirmed, or given back, meanwhile
        if self._confirm_on_read and not envelope.expects_reply:
            self.confirm(envelope.id)
            return
        await self._report(envelope.id, sender.uid, State.DELIVERED)
        if not waited:
            self._start(self._wait_for(held))

    async def _ready(self, envelope: Envelope, sender: str, note: Note) -> AgentRun | None:
        """The run that the message is to be handed to, when that is noted; None if its time is over.

        Raises:
            AgentGone: there is none, and will be none.
        """
        failures = 0
        while True:
            session = await self._agent.running()
            if envelope.expired(self._now()):
                return None
            try:
                # Until it has survived it, the reader counts as lost with it.
                losses = note.losses if note.waited else note.losses + 1
                self._journal.keep(envelope.id, sender, replace(note, losses=losses))
            except StateUnwritable as error:
                failures += 1
                _log.warning("%s is not handed over yet: %s", envelope.id, error)
                await asyncio.sleep(redelivery_delay(failures))
            else:
                return session

    async def _wait_for(self, held: Held) -> None:
        """Keep the next message back until this one is confirmed, so that an answer goes to its question."""
        message_id = held.message.id
        if await self._window.left(message_id, held, self._patience):
            return
        if not self._confirm_on_read:
            await self._give_up_waiting(held)
            return
        try:
            self.confirm(message_id)
        except StateUnwritable as error:
            _log.warning("%s could not be confirmed: %s", message_id, error)
            await self.give_back(message_id)

    async def _give_up_waiting(self, held: Held) -> None:
        message_id, sender = held.message.id, held.message.sender.uid
        self._set_aside(held)
        reason, failures = f"not confirmed for {self._patience:g} s", 0
        while not await self._report(message_id, sender, State.DELIVERED, reason):
            failures += 1
            if await self._window.left(message_id, held, redelivery_delay(failures)):
                return
        if self._window.get(message_id) is held:
            self._note_loss(held, -1)  # the reader has survived it

    def _set_aside(self, held: Held) -> None:
        held.waited = True
        self._window.set_aside(held.message.id)
        held.delivery.set_aside()
        self._changed()

    def _note_loss(self, held: Held, more: int) -> int:
        """Count `more` runs that ended with a message; how many that are now."""
        message_id, sender = held.message.id, held.message.sender.uid
        before = self._journal.note(message_id, sender) or Note()
        note = Note(max(0, before.losses + more), held.waited)
        try:
            if note != before:
                self._journal.keep(message_id, sender, note)
        except StateUnwritable as error:
            _log.warning("what became of %s could not be noted: %s", message_id, error)
        return note.losses

    def _incoming(self, envelope: Envelope, sender: Sender, redelivered: bool) -> Incoming:
        return Incoming(
            id=envelope.id,
            sender=sender,
            to=f"@{self._nick}",
            text=text_of(envelope.message),
            expects_reply=envelope.expects_reply,
            reply_to=envelope.reply_to,
            redelivered=redelivered,
            sent_at=format_time(envelope.sent_at),
        )

    # ── confirmation ────────────────────────────────────────────────────────────────────────────────

    def confirm(self, message_id: str) -> None:
        """The agent has seen it. Confirming again changes nothing.

        Raises:
            NotFound: it was never handed over.
            StateUnwritable: the journal cannot be written; it stays unconfirmed.
        """
        held = self._window.get(message_id)
        if held is None:
            self.sender_of(message_id)
            return
        sender = held.message.sender.uid
        self._journal.add(message_id, sender)
        self._window.remove(message_id)
        self._agent.confirmed()
        self._changed()
        self.confirmations.begin(message_id, sender, held.delivery)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:
            raise RuntimeError("the inbox does not run")
        self._tasks.create_task(work)

    async def _report(self, message_id: str, sender: str, state: State, reason: str = "") -> bool:
        try:
            await self._receipts.report(message_id, sender, state, reason)
        except PostroomError as error:
            _log.warning("the receipt %s of %s could not be stored: %s", state, message_id, error)
            return False
        return True

    # ── life of the inbox ───────────────────────────────────────────────────────────────────────────

    async def gone(self) -> None:
        """The agent's run has ended: give back what it held."""
        items = [held for _, held in self._window.clear()]
        self._changed()
        if self._agent.stopped:
            self._left = items
            return
        # It was at one of those that are waited for; else at the oldest, if it does one after the other.
        suspects = [held for held in items if not held.waited] or items[:1]
        for held in items:
            suspect = held in suspects
            await self._return(held, int(suspect and held.waited), lost=suspect)

    async def stopped(self) -> None:
        """Nothing is pulled any more, so it would not come again at once: give back what the agent held at its stop."""
        for held in self._left:
            await self._return(held, 0 if held.waited else -1, lost=False)

    async def give_back(self, message_id: str) -> None:
        """What should have confirmed a message failed: it comes again, up to its last delivery."""
        held = self._window.get(message_id)
        if held is not None:
            self._window.remove(message_id)
            self._changed()
            await self._return(held, int(held.waited), lost=True)

    async def _return(self, held: Held, more: int, *, lost: bool) -> None:
        losses = self._note_loss(held, more)
        try:
            if losses >= MAX_DELIVER:
                await held.delivery.term(f"{losses} attempts")
            else:
                await held.delivery.nak(redelivery_delay(losses) if lost else 0.0)
        except PostroomError as error:
            _log.info("%s could not be given back, its time runs out: %s", held.message.id, error)

    async def run(self) -> None:
        """Report and acknowledge what is confirmed, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()
