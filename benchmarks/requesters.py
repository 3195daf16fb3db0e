"""Who asks for tasks: an agent over the bus, as a sidecar does it, and a person over HTTP; and the floor of both."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg
from nats.js import JetStreamContext

from benchmarks.buses import PLAIN, TIMEOUT
from benchmarks.connection import Connection
from benchmarks.senders import TEXT, records
from postroom.bus.nats import NatsBus
from postroom.bus.port import Delivery, Subscription
from postroom.protocol import priority
from postroom.protocol.envelope import TaskRequest
from postroom.protocol.priority import Update
from postroom.protocol.tasks import parse_task_subject, task_id
from postroom.sidecar.bus import alert_raiser
from postroom.sidecar.keys import random_key
from postroom.sidecar.outgoing import Outgoing, OutgoingMessage

RECORDS = 4
"""What one task stores on its way: the request, `submitted`, `working` and `completed`."""

FOLLOWED = "followed"
"""A plain stream with one consumer."""


class Arrivals:
    """When which task got to some point, in the order in which they did; seconds of `time.time`."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._at: dict[str, asyncio.Future[float]] = {}

    def note(self, task: str) -> None:
        """It is there now; the first time counts."""
        at = self._of(task)
        if not at.done():
            at.set_result(time.time())
            self.order.append(task)

    async def of(self, task: str, timeout: float = TIMEOUT) -> float:
        """Wait until it is there; when that was."""
        async with asyncio.timeout(timeout):
            return await self._of(task)

    def _of(self, task: str) -> asyncio.Future[float]:
        return self._at.setdefault(task, asyncio.get_running_loop().create_future())

    def stored(self, record: Msg) -> None:
        """A record of TASKS was stored."""
        said = parse_task_subject(record.subject)
        if said is not None:
            self.note(said[1])


@dataclass(frozen=True, slots=True)
class Course:
    """One task; milliseconds.

    Attributes:
        accepted: from the begin to the PubAck of the request.
        read: from the begin until the agent has read the task.
        stored: from the begin until its `completed` is stored; None if nobody has looked.
        told: from the begin until the requester was told that it is completed.
    """

    accepted: float
    read: float
    stored: float | None
    told: float


class AgentRequester:
    """An agent that gives tasks to one worker; its own worker does not run, so that it hears of them here.

    Args:
        bus: the agent's connection.
        worker: uid of who runs the tasks.
    """

    def __init__(self, bus: NatsBus, worker: str) -> None:
        self._bus = bus
        self._worker = worker
        self._outgoing = Outgoing(
            bus, alert_raiser(bus, bus.uid), own=bus.uid, secret=secrets.token_bytes(32)
        )
        self._draft = OutgoingMessage(worker, TEXT, expects_reply=True, request=TaskRequest())
        self._said: dict[str, str] = {}
        self.told = Arrivals()

    async def listen(self) -> Subscription:
        """Begin to take what comes on the priority lane."""
        return await self._bus.consume("PRIORITY", self._bus.uid, self._take, batch=256)

    async def _take(self, delivery: Delivery) -> None:
        record = priority.decode(delivery.message.payload)
        if isinstance(record, Update) and record.state.terminal:
            self._said[record.task] = _said(record.update)
            self.told.note(record.task)
        await delivery.ack(confirm=False)

    async def ask(self) -> str:
        """Ask for a task; its id once the request is stored."""
        sent, _ = await self._outgoing.message(self._draft, random_key())
        return task_id(self._worker, self._bus.uid, sent)

    async def delegate(self, ends: Arrivals | None = None) -> Course:
        """Ask for a task and wait until it is completed; `ends` notes the `completed` records, if somebody looks."""
        begin = time.time()
        task = await self.ask()
        accepted = time.time()
        told = await self.told.of(task)
        stored = None if ends is None else await ends.of(task)
        return Course(
            _ms(begin, accepted),
            _ms(begin, float(self._said.pop(task))),
            None if stored is None else _ms(begin, stored),
            _ms(begin, told),
        )


class PersonRequester:
    """A person with a kept-alive connection: `POST /v1/tasks`, then `GET` with `wait=final`."""

    def __init__(self, connection: Connection, worker: str) -> None:
        self._connection = connection
        self._body = {"to": worker, "text": TEXT}

    async def delegate(self) -> float:
        """Ask for a task and wait until it is completed; milliseconds.

        Raises:
            RuntimeError: it was not completed.
        """
        begin = time.time()
        asked = json.loads(await self._connection.call("POST", "/v1/tasks", self._body))
        path = f"/v1/tasks/{asked['id']}?wait=final&timeout={TIMEOUT:g}"
        done = json.loads(await self._connection.call("GET", path))
        if done["state"] != "completed":
            raise RuntimeError(f"the task is {done['state']}: {done['detail']}")
        return _ms(begin, time.time())

    async def open(self) -> None:
        """Connect anew: the server closes a connection that was idle for a while."""
        await self._connection.open()


class Floor:
    """What nats-py and the server do with the control plane's credential and plain streams."""

    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream
        self._delivered = Arrivals()

    def delivered(self, record: Msg) -> None:
        """A record came out of `FOLLOWED`."""
        self._delivered.note((record.headers or {})["Nats-Msg-Id"])

    async def store(self) -> float:
        """As many records as a task has, one after the other, each acknowledged; milliseconds."""
        made = records("0" * 32, RECORDS)
        begin = time.time()
        for record in made:
            await self._publish(PLAIN, record.id, record.payload)
        return _ms(begin, time.time())

    async def deliver(self) -> float:
        """From the publish of one record until its consumer has it; milliseconds."""
        (record,) = records("0" * 32, 1)
        begin = time.time()
        await self._publish(FOLLOWED, record.id, record.payload)
        return _ms(begin, await self._delivered.of(record.id))

    async def _publish(self, stream: str, record: str, payload: bytes) -> None:
        headers = {"Nats-Msg-Id": record}
        await self._stream.publish(stream, payload, timeout=TIMEOUT, headers=headers)


def _said(update: dict[str, Any]) -> str:
    return update["task"]["status"]["message"]["parts"][0]["text"]


def _ms(begin: float, end: float) -> float:
    return 1000 * (end - begin)
