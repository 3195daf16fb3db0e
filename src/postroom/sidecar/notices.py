"""Records beside messages: receipts of the agent's own messages, posts of its projects' feeds, and the priority lane.

The log loses none of them. Receipts and posts do not wait for the agent's confirmation: an agent that was down when one
came asks for the history. The priority lane overtakes the inbox: cancels of and answers to the worker's tasks, requests
that lie behind unconfirmed messages, and updates of tasks that it asked of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from weakref import WeakValueDictionary

from postroom.bus.port import Delivery
from postroom.errors import (
    BusDisconnected,
    InvalidInput,
    NoResponders,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.protocol import priority, subjects
from postroom.protocol.content import subject_of
from postroom.protocol.envelope import Envelope
from postroom.protocol.handover import how_of
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.priority import Cancel, Input, Requested, Update
from postroom.protocol.receipts import Reason, Receipt, State, may_set
from postroom.protocol.streams import redelivery_delay
from postroom.protocol.tasks import ANSWERED_BY
from postroom.protocol.traces import trace_of
from postroom.sidecar.adapters import Incoming, said_in
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.ctl import DirectoryClient, TaskClient
from postroom.sidecar.delegations import Delegations
from postroom.sidecar.outgoing import Outgoing
from postroom.tasks.engine import TaskEngine
from postroom_a2a.messages import context_of
from postroom_a2a.tasks import Message
from postroom_a2a.times import format_time

REPORTED = frozenset({State.ANSWERED, State.DEAD})
"""The final states, which the agent is told of its own messages; of other states it is told only with a reason."""

_log = get_logger(__name__)


class Notices:
    """Hands receipts and posts to the agent of one worker."""

    def __init__(
        self, agent: AgentProgram, directory: DirectoryClient, outgoing: Outgoing, own: str
    ) -> None:
        self._agent = agent
        self._directory = directory
        self._outgoing = outgoing
        self._own = own

    async def take_receipt(self, delivery: Delivery) -> None:
        """Tell the agent if one of its messages was answered, is dead, or stays unconfirmed."""
        try:
            receipt = Receipt.decode(delivery.message.payload)
        except ProtocolViolation as error:
            _log.info("a receipt was ignored: %s", error)
            await delivery.ack()
            return
        session = self._agent.session
        reported = receipt.state in REPORTED or (receipt.reason and not how_of(receipt.reason))
        if reported and session and self._believed(delivery, receipt):
            record = {"type": "receipt", "id": receipt.message_id, "state": receipt.state.value}
            session.tell(record | ({"reason": receipt.reason} if receipt.reason else {}))
        await delivery.ack()

    def _believed(self, delivery: Delivery, receipt: Receipt) -> bool:
        """Whether its sender may set it: the control plane, or the recipient of our message."""
        setter = delivery.message.sender_uid
        if setter == CONTROL_PLANE:
            return True
        recipient = self._outgoing.recipient_of(receipt.message_id)
        return bool(recipient) and may_set(setter, recipient, CONTROL_PLANE)

    async def take_post(self, delivery: Delivery) -> None:
        """Hand a post of another agent to this one."""
        message = delivery.message
        try:
            project = subjects.parse(message.subject).project
            envelope = Envelope.decode(message.payload)
        except (ProtocolViolation, InvalidInput) as error:
            _log.info("a post was ignored: %s", error)
            await delivery.ack()
            return
        if message.sender_uid != self._own:
            sender = await self._directory.describe(message.sender_uid)
            text, parts = said_in(envelope.message)
            post = Incoming(
                id=envelope.id,
                sender=sender,
                to=f"#{project}",
                text=text,
                sent_at=format_time(envelope.sent_at),
                parts=parts,
                subject=subject_of(envelope.message),
                thread=context_of(envelope.message),
                trace=trace_of(envelope.message),
            )
            try:
                session = await self._agent.running()
                await session.hand_over(post)
            except (AgentGone, BrokenPipeError):
                _log.info("the agent ended before it read the post %s", envelope.id)
        await delivery.ack()


PASSING = (NoResponders, RequestTimeout, BusDisconnected, Refused)
"""Errors that pass by themselves."""


class Priority:
    """The priority lane of one worker.

    Its deliveries do not wait for each other, except the answers to one task: the first one counts.
    """

    def __init__(
        self, engine: TaskEngine, delegations: Delegations, task_client: TaskClient
    ) -> None:
        self._engine = engine
        self._delegations = delegations
        self._task_client = task_client
        self._requests = asyncio.Lock()
        self.recovered = asyncio.Event()
        """Set when the engine has the tasks of earlier runs: they come before new requests."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Carry out what was delivered, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()

    async def take(self, delivery: Delivery) -> None:
        """Handle one delivery; its acknowledgement follows when the effect is stored."""
        by = delivery.message.sender_uid
        try:
            record = priority.decode(delivery.message.payload)
        except ProtocolViolation as error:
            _log.warning("a malformed priority record from %s: %s", by, error)
            await delivery.term(Reason.MALFORMED)
            return
        match record:
            case Cancel(task, reason):
                self._start(delivery, self._engine.cancel(task, by, reason))
            case Input(task, message):
                signed = {**message, "metadata": {**_metadata(message), ANSWERED_BY: by}}
                turn = self._turns.setdefault(task, asyncio.Lock())
                self._start(delivery, self._answer(task, by, signed, turn))
            case Requested() if by == CONTROL_PLANE:
                self._start(delivery, self._take_requests())
            case Update() if by == CONTROL_PLANE:
                self._start(delivery, self._delegations.deliver(record))
            case _:
                # Only the control plane reads the log, so only it knows what is stored.
                _log.warning("%s sent an update of a task, which only the control plane may", by)
                await delivery.ack()

    async def _answer(self, task: str, by: str, message: Message, turn: asyncio.Lock) -> None:
        """Give the engine an answer; tries again here, since a later answer could overtake one that is given back."""
        async with turn:
            attempt = 0
            while True:
                try:
                    await self._engine.answer(task, by, message)
                except PASSING as error:
                    attempt += 1
                    _log.warning("an answer to task %s waits: %s", task, error)
                    await asyncio.sleep(BACKOFF.delay(attempt))
                else:
                    return

    async def _take_requests(self) -> None:
        """Accept the requests behind unconfirmed messages; that the inbox delivers them again has no effect."""
        await self.recovered.wait()
        async with self._requests:
            await self._task_client.requested(self._engine.accept)

    def _start(self, delivery: Delivery, work: Awaitable[None]) -> None:
        if self._tasks is None:
            raise RuntimeError("the priority lane does not run")
        self._tasks.create_task(_finish(delivery, work))


async def _finish(delivery: Delivery, work: Awaitable[None]) -> None:
    try:
        await work
        await delivery.ack()
    except PostroomError as error:
        _log.warning("a priority record is given back: %s", error)
        await _give_back(delivery)


async def _give_back(delivery: Delivery) -> None:
    try:
        await delivery.nak(redelivery_delay(delivery.attempt))
    except PostroomError as error:
        _log.info("the priority record comes again after its ack wait: %s", error)


def _metadata(message: dict[str, object]) -> dict[str, object]:
    metadata = message.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
