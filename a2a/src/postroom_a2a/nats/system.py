"""Questions to the servers themselves, over a connection of a user of their system account.

Nobody knows beforehand how many servers answer, so a caller that asks all of them says how long to wait for the next.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from postroom_a2a.errors import BusDisconnected, ProtocolViolation, RequestTimeout
from postroom_a2a.nats.mailbox import FrameQueue, Mailbox
from postroom_a2a.nats.natspy import adapted
from postroom_a2a.nats.port import FAULTS, NO_RESPONDERS, Connection, status_of

MOST = 100_000
"""Answers to one question that may lie unread."""


class ServerAnswer(NamedTuple):
    """The answer of one server: its `data` ({} for none), or the `error` that it reports instead."""

    server_id: str
    name: str
    data: dict[str, Any]
    error: Any


@dataclass
class Members:
    """The servers of a cluster.

    Attributes:
        present: id to name of the servers that answered.
        absent: names of the others, "?" for one whose name no server knows.
    """

    present: dict[str, str]
    absent: tuple[str, ...]
    size: int


async def ask_server(
    connection: Connection, subject: str, payload: bytes = b"", *, timeout: float
) -> bytes:
    """The answer of the server that `subject` names, or of the first server that answers."""
    mailbox = Mailbox(connection)
    try:
        return (await mailbox.ask(subject, payload, timeout=timeout)).data
    finally:
        await mailbox.close()


async def ask_servers(
    connection: Connection, subject: str, payload: bytes = b"", *, wait: Callable[[], float]
) -> AsyncGenerator[bytes]:
    """The answers of all servers as they come, until no further one comes within `wait()` seconds."""
    answers = FrameQueue(MOST)
    inbox = connection.new_inbox()
    try:
        subscription = await adapted(connection).subscribe_now(inbox, answers.put)
    except FAULTS as error:
        raise BusDisconnected(f"the servers cannot be asked {subject}: {error}") from error
    try:
        await connection.publish(subject, payload, inbox)
        while True:
            answer = await answers.get(wait())
            if status_of(answer) == NO_RESPONDERS:
                return
            yield answer.data
    except RequestTimeout:
        return
    except FAULTS as error:
        raise BusDisconnected(f"the servers cannot be asked {subject}: {error}") from error
    finally:
        with suppress(*FAULTS):  # the connection is on its way out
            await subscription.unsubscribe()


async def gather(
    connection: Connection,
    subject: str,
    payload: bytes,
    take: Callable[[ServerAnswer], bool],
    timeout: float,
) -> bool:
    """Ask all servers until `take` returns True; False if it did not within `timeout` seconds.

    Raises:
        ProtocolViolation: an answer cannot be read.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout

    def left() -> float:
        return max(0.0, deadline - clock())

    async with aclosing(ask_servers(connection, subject, payload, wait=left)) as answers:
        async for answer in answers:
            if take(read_answer(answer)):
                return True
    return False


async def members(connection: Connection, timeout: float) -> Members:
    """The servers of a cluster: each knows how many there are, and the leader knows their names.

    Raises:
        As `gather`.
    """
    present: dict[str, str] = {}
    names: set[str] = set()
    size = 1

    def take(answer: ServerAnswer) -> bool:
        nonlocal size
        meta = answer.data.get("meta_cluster") or {}
        present[answer.server_id] = answer.name
        names.update(str(peer.get("name")) for peer in meta.get("replicas") or ())
        size = max(size, int(meta.get("cluster_size") or 1), len(present))
        return len(present) >= size

    await gather(connection, "$SYS.REQ.SERVER.PING.JSZ", b"", take, timeout)
    absent = sorted(names - set(present.values()))
    absent += ["?"] * (size - len(present) - len(absent))
    return Members(present, tuple(absent), size)


def read_answer(payload: bytes) -> ServerAnswer:
    """Read the answer of a server; `ProtocolViolation` if it is malformed."""
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise ProtocolViolation("the answer of a nats-server is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolViolation("the answer of a nats-server is not a JSON object")
    server, data = document.get("server"), document.get("data")
    server = server if isinstance(server, dict) else {}
    return ServerAnswer(
        str(server.get("id")),
        str(server.get("name")),
        data if isinstance(data, dict) else {},
        document.get("error", data),
    )
