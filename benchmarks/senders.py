"""The ways to a recipient's inbox that `sends` compares; each has its own connection and the same text.

All end in a record that nats-server has on disk before the sender hears of it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nats.js import JetStreamContext

from benchmarks.buses import PLAIN, TIMEOUT, Buses, folded, plain_stream
from benchmarks.connection import Connection
from benchmarks.room import PostRoom
from postroom.bus.nats import NatsBus
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import message_id
from postroom.sidecar.bus import alert_raiser
from postroom.sidecar.keys import random_key
from postroom.sidecar.outgoing import Outgoing, OutgoingMessage
from postroom_a2a.messages import text_message

INSTANT = Path(__file__).with_name("worker") / "instant.toml"
WORKERS = 7
"""Workers that answer, in sandboxes: more than there are cores."""

TEXT = "the quick brown fox jumps over the lazy dog; " * 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """A record that is ready to be published."""

    id: str
    payload: bytes


class Sender(Protocol):
    """One way to send."""

    async def prepare(self, count: int) -> Sequence[Any]:
        """Make what does not belong to the measured time, for `count` sends."""

    async def send(self, item: Any) -> None:
        """Send one; returns when it is accepted."""


def records(recipient: str, count: int) -> list[Prepared]:
    """Envelopes to `recipient`, as a sidecar makes them."""
    secret = secrets.token_bytes(16)
    made = []
    for number in range(count):
        new = message_id(secret, recipient, str(number))
        envelope = Envelope(new, recipient, text_message(new, TEXT), time.time())
        made.append(Prepared(new, envelope.encode()))
    return made


class PlainSender:
    """nats-py's own JetStream publish, with the control plane's credential, to `subject`."""

    def __init__(self, stream: JetStreamContext, subject: str, recipient: str) -> None:
        self._stream = stream
        self._subject = subject
        self._recipient = recipient

    async def prepare(self, count: int) -> Sequence[Prepared]:
        """As `Sender.prepare`."""
        return records(self._recipient, count)

    async def send(self, item: Prepared) -> None:
        """As `Sender.send`."""
        headers = {"Nats-Msg-Id": item.id}
        await self._stream.publish(self._subject, item.payload, timeout=TIMEOUT, headers=headers)


class AgentSender:
    """Postroom's bus with an agent's credential: through the import between the two accounts."""

    def __init__(self, bus: NatsBus, recipient: str) -> None:
        self._bus = bus
        self._recipient = recipient
        self._subject = subjects.inbox(recipient, bus.uid)

    async def prepare(self, count: int) -> Sequence[Prepared]:
        """As `Sender.prepare`."""
        return records(self._recipient, count)

    async def send(self, item: Prepared) -> None:
        """As `Sender.send`."""
        await self._bus.publish(self._subject, item.payload, id=item.id, timeout=TIMEOUT)


class SidecarSender:
    """The sidecar's outgoing part on the same connection: id, envelope and publish."""

    def __init__(self, bus: NatsBus, recipient: str) -> None:
        self._outgoing = Outgoing(
            bus, alert_raiser(bus, bus.uid), own=bus.uid, secret=secrets.token_bytes(32)
        )
        self._draft = OutgoingMessage(recipient, TEXT)

    async def prepare(self, count: int) -> Sequence[int]:
        """As `Sender.prepare`."""
        return range(count)

    async def send(self, item: int) -> None:  # noqa: ARG002 (each has a new key)
        """As `Sender.send`."""
        await self._outgoing.message(self._draft, random_key())


class PersonSender:
    """`POST /v1/messages` over kept-alive connections, one for each send that is under way.

    Args:
        recipients: they get the messages in turns.
        answer: whether they run, and answer each message.
    """

    def __init__(
        self, connections: Sequence[Connection], recipients: Sequence[str], *, answer: bool = False
    ) -> None:
        self._connections = connections
        self._free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        self._recipients = itertools.cycle(recipients)
        self._answer = answer
        self._unanswered: list[str] = []
        for connection in connections:
            self._free.put_nowait(connection)

    async def prepare(self, count: int) -> Sequence[int]:
        """As `Sender.prepare`; the server has closed the connections while the others had their turns."""
        for connection in self._connections:
            await connection.open()
        return range(count)

    async def send(self, item: int) -> None:  # noqa: ARG002
        """As `Sender.send`."""
        body = {"to": next(self._recipients), "text": TEXT, "expects_reply": self._answer}
        connection = await self._free.get()
        try:
            sent = await connection.call("POST", "/v1/messages", body)
        finally:
            self._free.put_nowait(connection)
        if self._answer:
            self._unanswered.append(json.loads(sent)["id"])

    async def answered(self) -> None:
        """Wait until all that was sent is answered."""
        sent, self._unanswered = self._unanswered, []
        connection = await self._free.get()
        for each in sent:
            await connection.call("GET", f"/v1/messages/{each}?wait=answered&timeout={TIMEOUT:g}")
        self._free.put_nowait(connection)


class Senders:
    """All of them on one running post room; `caught_up` waits for what goes on behind them."""

    def __init__(self, stack: AsyncExitStack, room: PostRoom) -> None:
        self._stack = stack
        self._server = room.server
        self._buses = Buses(stack, room)
        self._recipient = room.address("recipient")
        self._author = room.address("author")
        self._workers = [room.idle_worker(f"w{n}", INSTANT)["uid"] for n in range(WORKERS)]

    async def open(self, concurrent: int) -> dict[str, Sender]:
        """Connect everything, for at most `concurrent` sends at a time; in the order of the turns."""
        client = await self._buses.core()
        self._stream = client.jetstream(timeout=TIMEOUT)
        await self._stream.add_stream(plain_stream())
        bus = await self._buses.agent(self._author)
        connections = [
            await self._stack.enter_async_context(
                Connection(self._server["url"], self._server["token"])
            )
            for _ in range(concurrent)
        ]
        inbox = subjects.inbox(self._recipient, self._author)
        self._to_workers = PersonSender(connections, self._workers, answer=True)
        return {
            "raw": PlainSender(self._stream, PLAIN, self._recipient),
            "inbox": PlainSender(self._stream, inbox, self._recipient),
            "agent": AgentSender(bus, self._recipient),
            "sidecar": SidecarSender(bus, self._recipient),
            "person": PersonSender(connections, [self._recipient]),
            "workers": self._to_workers,
        }

    async def caught_up(self) -> None:
        """Wait until all that was sent is folded, and answered, so that the next turn does not pay for it."""
        await self._to_workers.answered()
        await folded(self._stream, ["INBOX"])
