"""Messages to the agent, from the log to the agent's confirmation.

Nothing is queued here: one delivery at a time waits for the agent, and the agent holds as many unconfirmed messages as
its template allows. The bus client sends in-progress beats for all open deliveries.

1. A message that the journal has as confirmed is acknowledged again and not handed over. One whose parts the agent's
   card does not take is refused: it becomes a dead letter, and its sender learns why.
2. Any other is written to the journal, then handed over, so that a second handing is known as one after any kill. It
   happens alone: a message that kills its reader uses up its own deliveries and no other's.
3. Its sender learns that it was delivered, unless it is confirmed at once: then it learns that alone.
4. A message that is not confirmed within `patience` is set aside: its sender and people learn of it, and the next one
   is handed over. The agent may still confirm it.
5. A confirmed message is written to the journal, then its receipt is stored, then its delivery is acknowledged. A kill
   in between repeats the steps after the journal, never the hand-over. An answer in the log is the receipt: what is
   answered was seen.
6. When the agent's run ends, its messages are given back. One that was lost `MAX_DELIVER` times with its reader is
   refused and becomes a dead letter; the journal counts, since the server also counts what was given back on purpose.

A request for a task goes to the engine (`tasks.engine`); its delivery is acknowledged when the task's first record is
stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from postroom.bus.port import Delivery
from postroom.errors import NotFound, PostroomError, ProtocolViolation, StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.content import subject_of
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import Reason, State
from postroom.protocol.streams import MAX_DELIVER, redelivery_delay
from postroom.protocol.template import PATIENCE
from postroom.protocol.traces import trace_of
from postroom.sidecar.adapters import Incoming, Sender, said_in
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.ctl import DirectoryClient
from postroom.sidecar.journal import Journal, Note
from postroom.sidecar.keys import Derivation
from postroom.sidecar.outgoing import Confirmations, Receipts
from postroom.sidecar.session import AgentRun
from postroom.sidecar.window import Window
from postroom.tasks.engine import Ask
from postroom_a2a.messages import context_of
from postroom_a2a.tasks import Message
from postroom_a2a.times import format_time

SOON = 0.1
"""Seconds that a confirmation may take to be the only receipt: many a program answers within milliseconds."""

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Held:
    """A message that was handed over and is not confirmed.

    Attributes:
        delivery: the latest one.
        set_aside: it holds back no further messages any more.
        begun: the agent is at it; else it waits for its turn.
        derivation: the keys of what the agent sends while it handles the message.
    """

    delivery: Delivery
    message: Incoming
    set_aside: bool = False
    begun: bool = True
    derivation: Derivation = field(init=False)

    def __post_init__(self) -> None:
        source = f"{self.message.sender.uid}/{self.message.id}"
        self.derivation = Derivation(source, self.message.redelivered, trace=self.message.trace)


class Inbox:
    """The inbox of one worker.

    Args:
        accept: makes a request a task; returns when its first record is on disk.
        refuse: returns why the worker does not take a message, "" if it does.
        confirm_on_read: a message is confirmed once the agent has read it; one that expects a reply, when the agent
            answers or after `patience` seconds.
        patience: seconds for which an unconfirmed message holds back further ones.
        window: messages that the agent may hold before further ones wait.
        changed: called when the number of held messages changes.
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
        refuse: Callable[[Message], str] = lambda _: "",
        confirm_on_read: bool,
        patience: float = PATIENCE,
        window: int = 1,
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
        self._refuse = refuse
        self._confirm_on_read = confirm_on_read
        self._patience = patience
        self._changed = changed
        self._now = now
        self._window: Window[Held] = Window(window)
        self._left: list[Held] = []
        self.confirmations = Confirmations(self._report, self._start)
        self._tasks: asyncio.TaskGroup | None = None

    # ── held messages ───────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> list[Held]:
        """Handed over and not confirmed, oldest first."""
        return list(self._window)

    def unconfirmed(self) -> tuple[str, int]:
        """The messages that were set aside: a sentence for people, and their number."""
        set_aside = [held.message for held in self._window if held.set_aside]
        if not set_aside:
            return "", 0
        first, more = set_aside[0], f", nor {len(set_aside) - 1} more" if len(set_aside) > 1 else ""
        sender = first.sender.nick or first.sender.uid
        said = f"has not confirmed message {first.id[:8]} from @{sender} for {self._patience:g} s{more}"
        return said, len(set_aside)

    def find(self, message_id: str) -> Held | None:
        """The held message with this id."""
        return self._window.get(message_id)

    def sender_of(self, message_id: str) -> str:
        """The sender of a message that is held or was confirmed; raises NotFound."""
        held = self._window.get(message_id)
        sender = held.message.sender.uid if held else self._journal.sender(message_id)
        if not sender:
            raise NotFound(f"no message {message_id[:80]!r} was handed to this worker")
        return sender

    # ── deliveries ──────────────────────────────────────────────────────────────────────────────────

    async def take(self, delivery: Delivery) -> None:
        """Handle one delivery; returns when its message was handed over, or need not be."""
        try:
            envelope = self._opened(delivery)
        except ProtocolViolation as error:
            _log.warning("a malformed message from %s: %s", delivery.message.sender_uid, error)
            await delivery.term(Reason.MALFORMED)
            return
        sender = delivery.message.sender_uid
        if envelope.request is not None:
            # Before the acknowledgement: once its first record is stored, the task no longer needs this delivery.
            await self._accept(Ask(envelope.id, sender, envelope.message, envelope.request.skill))
            await delivery.ack()
            return
        if self._journal.confirmed(envelope.id, sender):
            self.confirmations.begin(envelope.id, sender, delivery)
        elif (held := self._window.get(envelope.id)) is not None:
            held.delivery = delivery
            if held.set_aside:
                delivery.set_aside()
        elif refusal := self._refuse(envelope.message):
            await delivery.term(f"{Reason.REFUSED.value}: {refusal}")
        else:
            await self._hand_over(delivery, envelope)

    def _opened(self, delivery: Delivery) -> Envelope:
        envelope = Envelope.decode(delivery.message.payload)
        if envelope.to != self._own:
            raise ProtocolViolation("the message is addressed to another agent")
        held = self._window.get(envelope.id)
        if held is not None and held.message.sender.uid != delivery.message.sender_uid:
            raise ProtocolViolation("the message has the id of another sender's message")
        return envelope

    async def _hand_over(self, delivery: Delivery, envelope: Envelope) -> None:
        sender_uid = delivery.message.sender_uid
        note = self._journal.note(envelope.id, sender_uid)
        if note is not None and note.losses >= MAX_DELIVER:
            await delivery.term(f"{note.losses} attempts")
            return
        again = delivery.attempt > 1 or note is not None
        set_aside = note is not None and note.set_aside
        await self._window.room(alone=again and not set_aside)
        sender = await self._directory.describe(sender_uid)
        try:
            session = await self._ready(envelope, sender_uid, note or Note())
        except AgentGone:
            await delivery.nak(redelivery_delay(delivery.attempt))
            return
        if session is None:
            await delivery.ack()  # the post office declares it dead
            return
        # No `await` from `_ready` to `add`: the end of the run finds the message in the window and gives it back.
        held = Held(delivery, self._incoming(envelope, sender, again), begun=not session.queues)
        if session.queues:
            session.begins = partial(self._begun, held)
        self._window.add(envelope.id, held, alone=again)
        if set_aside:
            self._set_aside(held)
        self._changed()
        if session.queues:
            # Those behind it are looked at, too, while it waits for its turn.
            self._start(self._given(held, session))
        else:
            await self._given(held, session)

    async def _given(self, held: Held, session: AgentRun) -> None:
        """Give a message to its run, and see what becomes of it."""
        message_id = held.message.id
        try:
            await session.hand_over(held.message)
        except BrokenPipeError:
            # An agent that closed its input may still confirm; at the run's end `gone` gives the message back.
            while self._window.get(message_id) is held:
                await self._window.change()
            return
        if self._window.get(message_id) is not held:
            return  # confirmed, or given back, meanwhile
        if self._confirm_on_read and not held.message.expects_reply:
            self.confirm(message_id)
            return
        self._start(self._wait_for(held))

    async def _ready(self, envelope: Envelope, sender: str, note: Note) -> AgentRun | None:
        """The run to hand the message to, once the journal has a note of it; None if the message has expired.

        Raises:
            AgentGone: no run will follow.
        """
        failures = 0
        while True:
            session = await self._agent.running()
            if envelope.expired(self._now()):
                return None
            try:
                # The reader counts as lost with the message until it has survived it.
                losses = note.losses + (not note.set_aside and not session.queues)
                self._journal.keep(envelope.id, sender, replace(note, losses=losses))
            except StateUnwritable as error:
                failures += 1
                _log.warning("%s is not handed over yet: %s", envelope.id, error)
                await asyncio.sleep(redelivery_delay(failures))
            else:
                return session

    def _begun(self, held: Held) -> None:
        """The message has its turn: from now on its reader may be lost with it."""
        held.begun = True
        if not held.set_aside:
            self._note_loss(held, 1)

    async def _wait_for(self, held: Held) -> None:
        """Hold the next message back until this one is confirmed, so that an answer goes to its question."""
        message_id, soon = held.message.id, min(SOON, self._patience)
        if await self._window.left(message_id, held, soon):
            return
        await self._report(message_id, held.message.sender.uid, State.DELIVERED)
        if held.set_aside or await self._window.left(message_id, held, self._patience - soon):
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
            self._note_loss(held, -1)  # the reader has survived the message

    def _set_aside(self, held: Held) -> None:
        held.set_aside = True
        self._window.set_aside(held.message.id)
        held.delivery.set_aside()
        self._changed()

    def _note_loss(self, held: Held, more: int) -> int:
        """Add `more` to the runs that ended while they held the message; returns their number."""
        message_id, sender = held.message.id, held.message.sender.uid
        before = self._journal.note(message_id, sender) or Note()
        note = Note(max(0, before.losses + more), held.set_aside)
        try:
            if note != before:
                self._journal.keep(message_id, sender, note)
        except StateUnwritable as error:
            _log.warning("the journal has no note of message %s: %s", message_id, error)
        return note.losses

    def _incoming(self, envelope: Envelope, sender: Sender, redelivered: bool) -> Incoming:
        text, parts = said_in(envelope.message)
        return Incoming(
            id=envelope.id,
            sender=sender,
            to=f"@{self._nick}",
            text=text,
            expects_reply=envelope.expects_reply,
            reply_to=envelope.reply_to,
            redelivered=redelivered,
            sent_at=format_time(envelope.sent_at),
            parts=parts,
            subject=subject_of(envelope.message),
            thread=context_of(envelope.message),
            trace=trace_of(envelope.message),
        )

    # ── confirmation ────────────────────────────────────────────────────────────────────────────────

    def confirm(self, message_id: str, *, answered: bool = False) -> None:
        """The agent has seen the message. Confirming again changes nothing.

        Args:
            answered: its answer is in the log.

        Raises:
            NotFound: the message was never handed over.
            StateUnwritable: the journal cannot be written; the message stays unconfirmed.
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
        self.confirmations.begin(message_id, sender, held.delivery, told=answered)

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
        """The agent's run has ended: give its messages back."""
        items = [held for _, held in self._window.clear()]
        self._changed()
        if self._agent.stopped:
            self._left = items
            return
        # The run worked on a message that was not set aside; else on the oldest, if it takes one after the other.
        suspects = [held for held in items if not held.set_aside] or items[:1]
        for held in items:
            suspect = held in suspects
            await self._return(held, int(suspect and held.set_aside), lost=suspect)

    async def stopped(self) -> None:
        """Give back what the agent held at its stop; only now, since a pull would fetch it again at once."""
        for held in self._left:
            await self._return(held, 0 if held.set_aside or not held.begun else -1, lost=False)

    async def give_back(self, message_id: str) -> None:
        """Give back a message whose handling failed: the bus delivers it again, up to `MAX_DELIVER` times."""
        held = self._window.get(message_id)
        if held is not None:
            self._window.remove(message_id)
            self._changed()
            await self._return(held, int(held.set_aside), lost=True)

    async def _return(self, held: Held, more: int, *, lost: bool) -> None:
        losses = self._note_loss(held, more)
        try:
            if losses >= MAX_DELIVER:
                await held.delivery.term(f"{losses} attempts")
            else:
                await held.delivery.nak(redelivery_delay(losses) if lost else 0.0)
        except PostroomError as error:
            _log.info("message %s comes again after its ack wait: %s", held.message.id, error)

    async def run(self) -> None:
        """Report and acknowledge confirmed messages, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()
