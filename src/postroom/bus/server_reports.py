"""Reports of every server of a cluster, over the system account."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import aclosing

from postroom.bus.fitness import ServerReport
from postroom.errors import ProtocolViolation
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.system import ask_servers

SILENCE = 0.5
"""Seconds without a further answer after which all have come: their number is unknown before."""

ANSWER_TIMEOUT = 3.0
"""Seconds for an answer that must come."""


async def server_reports(
    connection: WireConnection, expected: Collection[str] = (), *, timeout: float = ANSWER_TIMEOUT
) -> list[ServerReport]:
    """The reports of the answering servers about themselves, by name.

    Args:
        expected: ids of servers whose answers must come.
        timeout: seconds for the first answer and for those expected.

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
    """Whether the `servers` keep pushed accounts and share them with each other.

    Each server that keeps any answers a request for its list; one of type `full` gives all of them to a server that
    copies.
    """
    listing = await _count(connection, "$SYS.REQ.CLAIMS.LIST", servers)
    return listing == servers and await _count(connection, "$SYS.REQ.CLAIMS.PACK", 1) == 1


async def _count(connection: WireConnection, subject: str, most: int) -> int:
    """The number of answers to a question, up to `most`."""
    await connection.ready(ANSWER_TIMEOUT)
    count = 0
    async with aclosing(ask_servers(connection, subject, wait=lambda: ANSWER_TIMEOUT)) as answers:
        async for _ in answers:
            count += 1
            if count == most:
                break
    return count


def _complete(reports: dict[str, ServerReport]) -> bool:
    """Whether no further server can answer: a single server, or every server with JetStream of its cluster."""
    newest = next(reversed(reports.values()))
    return not newest.cluster or (newest.peers > 1 and len(reports) == newest.peers)
