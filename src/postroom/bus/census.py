"""Asking every server of a cluster at once, over the system account."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing

from postroom.bus.fitness import ServerReport
from postroom.errors import ProtocolViolation, RequestTimeout
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.mailbox import FrameQueue
from postroom_a2a.nats.port import NO_RESPONDERS, Frame, status_of

SILENCE = 0.5
"""Seconds without a further answer after which all are there: how many come is not known before."""

PATIENCE = 3.0
"""Seconds to wait for an answer that must come."""

MOST = 100_000
"""Answers to one question that are read."""


async def census(
    connection: WireConnection, expected: Collection[str] = (), *, patience: float = PATIENCE
) -> list[ServerReport]:
    """What the servers that answer say about themselves, by name.

    Args:
        connection: of a user of the system account.
        expected: ids of servers that are waited for.
        patience: seconds that the first, and those expected, have for their answers.

    Raises:
        BusDisconnected: there is no connection.
        ProtocolViolation: an answer cannot be read.
    """
    reports: dict[str, ServerReport] = {}

    def all_expected() -> bool:
        return bool(reports) and reports.keys() >= set(expected)

    def wait() -> float:
        return SILENCE if all_expected() else patience

    async with aclosing(_answers(connection, "$SYS.REQ.SERVER.PING.VARZ", wait)) as answers:
        async for answer in answers:
            try:
                report = ServerReport.read(json.loads(answer.data))
            except ValueError as error:
                raise ProtocolViolation("a server's report about itself is not JSON") from error
            reports[report.server_id] = report
            if all_expected() and _complete(reports):
                break
    return sorted(reports.values(), key=lambda report: report.name)


async def keep_accounts(connection: WireConnection, servers: int) -> bool:
    """Whether the `servers` keep accounts that are pushed to them, and share them with each other.

    Each that keeps any answers when it is asked for a list; for others to copy, one of type `full`
    gives all of them.

    Raises:
        BusDisconnected: there is no connection.
    """
    listing = 0
    async with aclosing(_answers(connection, "$SYS.REQ.CLAIMS.LIST", lambda: PATIENCE)) as answers:
        async for _ in answers:
            listing += 1
            if listing == servers:
                break
    if listing < servers:
        return False
    async with aclosing(_answers(connection, "$SYS.REQ.CLAIMS.PACK", lambda: PATIENCE)) as answers:
        async for _ in answers:
            return True
    return False


def _complete(reports: dict[str, ServerReport]) -> bool:
    """Whether nobody else can answer: a single server, or all that its cluster has JetStream on."""
    newest = next(reversed(reports.values()))
    return not newest.cluster or (newest.peers > 1 and len(reports) == newest.peers)


async def _answers(
    connection: WireConnection, subject: str, wait: Callable[[], float]
) -> AsyncGenerator[Frame]:
    """Answers as they come, until none came for `wait()` seconds."""
    await connection.ready(PATIENCE)
    answers = FrameQueue(MOST)
    inbox = connection.new_inbox()
    subscription = await connection.subscribe_now(inbox, answers.put)
    try:
        await connection.publish(subject, reply=inbox)
        while True:
            answer = await answers.get(wait())
            if status_of(answer) == NO_RESPONDERS:
                return
            yield answer
    except RequestTimeout:
        return
    finally:
        await subscription.unsubscribe()
