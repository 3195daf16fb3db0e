"""Asking every server of a cluster at once, over the system account."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import aclosing

from postroom.bus.fitness import ServerReport
from postroom.errors import ProtocolViolation
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.system import ask_servers

SILENCE = 0.5
"""Seconds without a further answer after which all are there: how many come is not known before."""

ANSWER_TIMEOUT = 3.0
"""Seconds to wait for an answer that must come."""


async def server_reports(
    connection: WireConnection, expected: Collection[str] = (), *, timeout: float = ANSWER_TIMEOUT
) -> list[ServerReport]:
    """What the servers that answer say about themselves, by name.

    Args:
        connection: of a user of the system account.
        expected: ids of servers that are waited for.
        timeout: seconds that the first, and those expected, have for their answers.

    Raises:
        ProtocolViolation: an answer cannot be read.
    """
    reports: dict[str, ServerReport] = {}

    def all_expected() -> bool:
        return bool(reports) and reports.keys() >= set(expected)

    def wait() -> float:
        return SILENCE if all_expected() else timeout

    await connection.ready(ANSWER_TIMEOUT)
    subject = "$SYS.REQ.SERVER.PING.VARZ"
    async with aclosing(ask_servers(connection, subject, wait=wait)) as answers:
        async for answer in answers:
            try:
                report = ServerReport.read(json.loads(answer))
            except ValueError as error:
                raise ProtocolViolation("a server's report about itself is not JSON") from error
            reports[report.server_id] = report
            if all_expected() and _complete(reports):
                break
    return sorted(reports.values(), key=lambda report: report.name)


async def share_accounts(connection: WireConnection, servers: int) -> bool:
    """Whether the `servers` keep accounts that are pushed to them, and share them with each other.

    Each that keeps any answers when it is asked for a list; for others to copy, one of type `full`
    gives all of them.
    """
    listing = await _count(connection, "$SYS.REQ.CLAIMS.LIST", servers)
    return listing == servers and await _count(connection, "$SYS.REQ.CLAIMS.PACK", 1) == 1


async def _count(connection: WireConnection, subject: str, most: int) -> int:
    """Answers to a question, up to `most` of them."""
    await connection.ready(ANSWER_TIMEOUT)
    count = 0
    async with aclosing(ask_servers(connection, subject, wait=lambda: ANSWER_TIMEOUT)) as answers:
        async for _ in answers:
            count += 1
            if count == most:
                break
    return count


def _complete(reports: dict[str, ServerReport]) -> bool:
    """Whether nobody else can answer: a single server, or all that its cluster has JetStream on."""
    newest = next(reversed(reports.values()))
    return not newest.cluster or (newest.peers > 1 and len(reports) == newest.peers)
