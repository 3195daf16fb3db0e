"""The priority lane, which overtakes the inbox: cancels of and answers to the worker's tasks, requests that lie behind
unconfirmed messages, and updates of tasks that it asked of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from weakref import WeakValueDictionary

from postroom.bus.port import Delivery
from postroom.errors import (
    BusDisconnected,
    NoResponders,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.protocol import priority
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.priority import Cancel, Input, Requested, Update
from postroom.protocol.receipts import Reason
from postroom.protocol.streams import redelivery_delay
from postroom.protocol.tasks import ANSWERED_BY
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.delegations import Delegations
from postroom.sidecar.task_client import TaskClient
from postroom.tasks.engine import TaskEngine
from postroom_a2a.tasks import Message

PASSING = (NoResponders, RequestTimeout, BusDisconnected, Refused)
"""Errors that pass by themselves."""

_log = get_logger(__name__)


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
