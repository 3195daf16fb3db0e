"""Whether servers that an operator runs can keep Postroom's promises, by the reports of every server of a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from postroom.bus.server_binary import OLDEST
from postroom.errors import BusDisconnected, ProtocolViolation, ServerFailed, ServerTooOld
from postroom.protocol.limits import MAX_CONTROL_LINE, MAX_PAYLOAD
from postroom.protocol.streams import STREAMS
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.system import ask_servers

REMEDY = "`postroom nats config` prints what its configuration must say"

LEAST_STORE = sum(spec.max_bytes for spec in STREAMS) + 1024**3
"""Bytes on disk: the sum of the limits of all streams and buckets of one organisation."""

COPIES = 3
"""Copies of each record on a cluster, and so its least number of servers."""

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")

SILENCE = 0.5
"""Seconds without a further answer after which all have come: their number is unknown before."""

ANSWER_TIMEOUT = 3.0
"""Seconds for an answer that must come."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The report of one server about itself.

    Attributes:
        server_id: its address for the system account.
        cluster: name of the cluster, "" for a single server.
        proxies: public keys of the gateways that it trusts.
        signers: public signing keys of the operator that it trusts.
        max_store: bytes that JetStream may keep on its disk, 0 where JetStream is off.
        sync_always: each record is on disk before its acknowledgement.
        peers: servers with JetStream that its cluster has, up or down; 1 without a cluster.
        leader: name of their leader, "" without one.
    """

    server_id: str
    name: str
    cluster: str
    version: str
    max_payload: int
    max_control_line: int
    proxies: frozenset[str]
    signers: frozenset[str]
    max_store: int
    sync_always: bool
    peers: int
    leader: str

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> ServerReport:
        """From the answer to a VARZ request.

        Raises:
            ProtocolViolation: a server does not answer so.
        """
        try:
            server, data = answer["server"], answer["data"]
            jetstream = data.get("jetstream") or {}
            config, meta = jetstream.get("config") or {}, jetstream.get("meta") or {}
            trusted = (data.get("proxies") or {}).get("trusted") or ()
            claims = data.get("trusted_operators_claim") or ()
            signers = [key for claim in claims for key in claim["nats"].get("signing_keys") or ()]
            return cls(
                server_id=str(server["id"]),
                name=str(server["name"]),
                cluster=str(server.get("cluster", "")),
                version=str(data["version"]),
                max_payload=int(data["max_payload"]),
                max_control_line=int(data["max_control_line"]),
                proxies=frozenset(str(proxy["key"]) for proxy in trusted),
                signers=frozenset(map(str, signers)),
                max_store=max(0, int(config.get("max_storage", 0))),
                sync_always=bool(config.get("sync_always", False)),
                peers=int(meta.get("cluster_size", 1)),
                leader=str(meta.get("leader", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolViolation("a server's report about itself cannot be read") from error


@dataclass(frozen=True, slots=True)
class Fitness:
    """The result for accepted servers.

    Attributes:
        replicas: copies of each stream.
        doubts: warnings for people, a sentence each.
    """

    replicas: int
    version: str
    doubts: tuple[str, ...]


def check_version(version: str, place: str) -> None:
    """Raise `ServerTooOld` for a version that cannot keep Postroom's promises."""
    if _numbers(version) < OLDEST:
        oldest = ".".join(str(part) for part in OLDEST)
        raise ServerTooOld(
            f"{place} is nats-server {version or 'of no version'}; {oldest} is the oldest that works",
            remedy="install a newer nats-server there",
        )


def assess(servers: Sequence[ServerReport], proxy: str) -> Fitness:
    """Whether a post room may run on `servers`, the answering ones of one cluster.

    Args:
        proxy: public key of the gateway.

    Raises:
        ServerFailed: they could lose acknowledged records, or lack a setting; with the remedy.
        BusDisconnected: too few of them are up.
    """
    for server in servers:
        check_version(server.version, f"the server {server.name}")
    storing = [server for server in servers if server.max_store]
    if not storing:
        raise ServerFailed("JetStream is off on the NATS", remedy=REMEDY)
    peers = max(server.peers for server in storing)
    _check_keeping(storing, peers)
    for server in servers:
        _check_limits(server, proxy)
    for server in storing:
        if server.max_store < LEAST_STORE:
            raise ServerFailed(
                f"JetStream of the server {server.name} may keep {server.max_store} bytes, and the"
                f" limits of the streams add up to {LEAST_STORE}",
                remedy=f"raise max_file_store there: {REMEDY}",
            )
    if peers > 1 and not any(server.leader for server in storing):
        raise BusDisconnected(
            f"{len(storing)} of {peers} servers with JetStream answer, and they have no leader",
            remedy="start the others",
        )
    return Fitness(
        replicas=COPIES if peers >= COPIES else 1,
        version=min((server.version for server in servers), key=_numbers),
        doubts=_doubts(storing),
    )


def _check_keeping(storing: Sequence[ServerReport], peers: int) -> None:
    if 1 < peers < COPIES:
        raise ServerFailed(
            f"JetStream runs on {peers} servers, which stand still when one of them dies",
            remedy=f"run {COPIES} or more, or a single one with sync_interval: always",
        )
    if peers == 1 and not all(server.sync_always for server in storing):
        raise ServerFailed(
            f"the single server {storing[0].name} acknowledges records before they are on disk",
            remedy=f"set sync_interval: always in its jetstream block: {REMEDY}",
        )


def _check_limits(server: ServerReport, proxy: str) -> None:
    if proxy not in server.proxies:
        raise ServerFailed(
            f"the server {server.name} does not trust the gateway of this post room (proxies)",
            remedy=REMEDY,
        )
    for name, value, least in (
        ("max_payload", server.max_payload, MAX_PAYLOAD),
        ("max_control_line", server.max_control_line, MAX_CONTROL_LINE),
    ):
        if value < least:
            raise ServerFailed(
                f"{name} of the server {server.name} is {value}, less than {least}", remedy=REMEDY
            )


def _doubts(storing: Sequence[ServerReport]) -> tuple[str, ...]:
    early = sorted(server.name for server in storing if not server.sync_always)
    if not early:
        return ()
    doubt = (
        f"{', '.join(early)} acknowledge before disk (no sync_interval: always): what the last two"
        " minutes brought can be lost when machines lose power, though not when one process dies"
    )
    return (doubt,)


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.match(version)
    return tuple(int(part) for part in found.groups()) if found else (0,)


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
