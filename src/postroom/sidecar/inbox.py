"""Messages to the agent, from the log to the agent's confirmation.

Nothing is queued here: one delivery at a time waits for the agent, and what was handed over is held until it is
confirmed, at most `WINDOW` at once. The bus sends in-progress beats for all of them until they are answered.

1. A delivery that was confirmed before (the journal knows) is acknowledged again and not handed over.
2. A message that was delivered before is handed over alone, so that a message that kills its reader uses up
   its own deliveries and nobody else's.
3. Confirmed: written to the journal, then the receipt, then the acknowledgement. A kill in between repeats
   what comes after the journal and never the hand-over.
4. The agent's run ends: what it held is given back with a delay.

A request for a task is not handed over here: it goes to the engine (`a2a.engine`), and is done with when its first
record is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from postroom.a2a.engine import Ask
from postroom.a2a.messages import context_of, text_of
from postroom.bus.port import Delivery
from postroom.errors import NotFound, PostroomError, ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import Reason, State
from postroom.protocol.streams import redelivery_delay
from postroom.protocol.times import format_time
from postroom.sidecar.adapters import Incoming, Sender
from postroom.sidecar.agent import AgentGone, Runs
from postroom.sidecar.directory import Directory
from postroom.sidecar.journal import Journal
from postroom.sidecar.keys import Derivation
from postroom.sidecar.receipts import Receipts
from postroom.sidecar.window import Window

ANSWER_PATIENCE = 60.0
"""Seconds for which a program that prints answers keeps further messages waiting; after that it has none to give."""

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Held:
    """A message that was handed over and is not confirmed.

    Attributes:
        delivery: the latest one; replaced when the log delivers the message again meanwhile.
        message: as the agent sees it.
        context: A2A context id of the message.
        derivation: gives keys to what the agent sends because of it.
    """

    delivery: Delivery
    message: Incoming
    context: str
    derivation: Derivation = field(init=False)

    def __post_init__(self) -> None:
        source = f"{self.message.sender.uid}/{self.message.id}"
        self.derivation = Derivation(source, self.message.redelivered)


class Inbox:
    """The inbox of one worker.

    Args:
        agent: who is handed the messages.
        directory: names the senders.
        receipts: reports to them.
        journal: of confirmed messages.
        own, nick: of the worker.
        accept: makes a request a task; returns when its first record is on disk.
        confirm_on_read: a message that the agent read off its input is confirmed; one that expects a reply when
            the agent said something, or after `patience` seconds.
        changed: told when the number of held messages changes.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        agent: Runs,
        directory: Directory,
        receipts: Receipts,
        journal: Journal,
        *,
        own: str,
        nick: str,
        accept: Callable[[Ask], Awaitable[None]],
        confirm_on_read: bool,
        patience: float = ANSWER_PATIENCE,
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
        self._settling: dict[str, Delivery] = {}
        self._all_settled = asyncio.Event()
        self._all_settled.set()
        self._tasks: asyncio.TaskGroup | None = None

    # ── what the agent holds ────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> list[Held]:
        """Handed over and not confirmed, oldest first."""
        return list(self._window)

    def current(self) -> Held | None:
        """The message that a program that handles one after the other is at: the oldest one held."""
        return next(iter(self._window), None)

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
            self._settle(envelope.id, sender, delivery)
        elif (held := self._window.get(envelope.id)) is not None:
            held.delivery = delivery
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
        alone = delivery.attempt > 1
        await self._window.room(alone=alone)
        sender = await self._directory.describe(delivery.message.sender_uid)
        try:
            session = await self._agent.running()
        except AgentGone:
            await delivery.nak(redelivery_delay(delivery.attempt))
            return
        if envelope.expired(self._now()):
            await delivery.ack()  # the post office declares it dead
            return
        # Nothing is awaited from `running` to `add`: the run that ends next will give it back.
        held = Held(delivery, self._incoming(envelope, sender, alone), context_of(envelope.message))
        self._window.add(envelope.id, held, alone=alone)
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
        if self._confirm_on_read:
            await self._await_answer(envelope.id, held)

    async def _await_answer(self, message_id: str, held: Held) -> None:
        """Keep the next message back until this one is answered, so that an answer goes to its question."""
        end = asyncio.get_running_loop().time() + self._patience
        while self._window.get(message_id) is held:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                self.confirm(message_id)
                return
            await self._window.change(left)

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
        self._settle(message_id, sender, held.delivery)

    def _settle(self, message_id: str, sender: str, delivery: Delivery) -> None:
        if message_id in self._settling:
            self._settling[message_id] = delivery
            return
        self._settling[message_id] = delivery
        self._all_settled.clear()
        if self._tasks is None:
            raise RuntimeError("the inbox does not run")
        self._tasks.create_task(self._report_and_ack(message_id, sender))

    async def _report_and_ack(self, message_id: str, sender: str) -> None:
        attempt = 0
        try:
            # While it is open the bus does not deliver it again, so nobody else would report it.
            while not await self._report(message_id, sender, State.SEEN):
                attempt += 1
                await asyncio.sleep(redelivery_delay(attempt))
            await self._acknowledge(message_id)
        finally:
            del self._settling[message_id]
            if not self._settling:
                self._all_settled.set()

    async def _acknowledge(self, message_id: str) -> None:
        """Acknowledge the latest delivery, and each one that comes in its place meanwhile."""
        done: Delivery | None = None
        while (delivery := self._settling[message_id]) is not done:
            done = delivery
            try:
                await delivery.ack()
            except PostroomError as error:
                # It is delivered again, and the journal leads back here.
                _log.warning("%s is seen, but could not be acknowledged: %s", message_id, error)

    async def _report(self, message_id: str, sender: str, state: State) -> bool:
        try:
            await self._receipts.report(message_id, sender, state)
        except PostroomError as error:
            _log.warning("the receipt %s of %s could not be stored: %s", state, message_id, error)
            return False
        return True

    # ── life of the inbox ───────────────────────────────────────────────────────────────────────────

    async def gone(self) -> None:
        """The agent's run has ended: give back what it held."""
        for message_id, held in self._window.clear():
            await self._return(message_id, held)
        self._changed()

    async def give_back(self, message_id: str) -> None:
        """What should have confirmed a message failed: it comes again, up to its last delivery."""
        held = self._window.get(message_id)
        if held is not None:
            self._window.remove(message_id)
            self._changed()
            await self._return(message_id, held)

    async def _return(self, message_id: str, held: Held) -> None:
        try:
            await held.delivery.nak(redelivery_delay(held.delivery.attempt))
        except PostroomError as error:
            _log.info("%s could not be given back, its time runs out: %s", message_id, error)

    async def run(self) -> None:
        """Report and acknowledge what is confirmed, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()

    async def settled(self, timeout: float) -> None:
        """Wait for reports and acknowledgements that are under way."""
        try:
            async with asyncio.timeout(timeout):
                await self._all_settled.wait()
        except TimeoutError:
            _log.warning("%d confirmed messages were not acknowledged in time", len(self._settling))
