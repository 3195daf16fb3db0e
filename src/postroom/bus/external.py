"""A NATS that an operator runs: examined before the post room uses it, watched, never started or ended.

The examination begins with the greeting (INFO), which a server sends before authentication.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from postroom.bus.address import BusAddress
from postroom.bus.fitness import (
    REMEDY,
    Fitness,
    ServerReport,
    assess,
    check_version,
    server_reports,
    share_accounts,
)
from postroom.bus.places import tls_context
from postroom.errors import (
    BusDisconnected,
    PostroomError,
    ProtocolViolation,
    ServerFailed,
    Unauthorized,
)
from postroom.observe import get_logger
from postroom_a2a.nats import Credentials, WireConnection
from postroom_a2a.nats.info import fetch_info
from postroom_a2a.retry import Backoff

log = get_logger(__name__)

WAIT = 15.0
"""Seconds for servers that are starting, or electing a leader."""

INTERVAL = 10.0
"""Seconds between two checks of the servers."""

ANSWER = 5.0
"""Seconds that one connection may take."""

PAUSE = 0.25

TIMEOUT = 5.0
"""Seconds for connection, handshake and greeting."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The greeting of one server.

    Attributes:
        info: the INFO document; its fields depend on the server.
    """

    url: str
    info: dict[str, Any]

    @property
    def version(self) -> str:
        """Version of the server, e.g. "2.15.1"."""
        return str(self.info.get("version", ""))

    @property
    def server_id(self) -> str:
        """The server's address for the system account."""
        return str(self.info.get("server_id", ""))

    @property
    def cluster(self) -> str:
        """Name of the server's cluster, "" for a single server."""
        return str(self.info.get("cluster", ""))


async def greeting(
    url: str, tls: ssl.SSLContext | None = None, *, timeout: float = TIMEOUT
) -> Greeting:
    """The greeting of the server at `url`, `nats://host:port`.

    Args:
        tls: for a server that does the TLS handshake before its greeting.
        timeout: seconds for connection, handshake and greeting.

    Raises:
        BusDisconnected: nothing accepts connections there, or it stays silent.
        ServerFailed: not a nats-server, no valid certificate, or a greeting before TLS.
    """
    where = urlsplit(url)
    try:
        async with asyncio.timeout(timeout):
            return Greeting(url, await fetch_info(where.hostname, where.port, tls=tls))
    except ProtocolViolation as error:
        raise ServerFailed(
            f"what listens at {url} does not greet as a nats-server",
            remedy="correct POSTROOM_NATS_URL; tls:// is for a server that wants TLS first",
        ) from error
    except TimeoutError as error:
        raise BusDisconnected(f"{url} stays silent") from error
    except ssl.SSLCertVerificationError as error:
        raise ServerFailed(
            f"the certificate of {url} is not valid here: {error.verify_message}",
            remedy="name the authority that signed it in POSTROOM_NATS_CA",
        ) from error
    except ssl.SSLError as error:
        # An attacker in between could talk a client out of TLS if it let the server speak first.
        raise ServerFailed(
            f"{url} does not begin with TLS",
            remedy="give that server a tls block with handshake_first: true",
        ) from error
    except OSError as error:
        raise BusDisconnected(f"{url} cannot be reached: {error.strerror or error}") from error


class ExternalBus:
    """Implements `BusHost` for servers that trust our keys.

    Use: `await start()`, then `run()` as a task, which ends after `stop()`.

    Args:
        credentials: of a user of Postroom's system account.
        proxy: returns the present public key of the gateway, which the servers must trust.
        authority: file with the certificate that signed theirs (`tls://` only).
        wait: seconds that `start` waits for servers that are down.
        interval: seconds between two checks of them.
        report: gets a line for each server that goes and comes back.
    """

    def __init__(
        self,
        servers: Sequence[str],
        credentials: Credentials,
        proxy: Callable[[], str],
        *,
        authority: Path | None = None,
        wait: float = WAIT,
        interval: float = INTERVAL,
        report: Callable[[str], None] = log.warning,
    ) -> None:
        self._servers = tuple(servers)
        self._tls = tls_context(authority) if self._servers[0].startswith("tls:") else None
        self._credentials = credentials
        self._proxy = proxy
        self._wait = wait
        self._interval = interval
        self._report = report
        self._cluster = ""
        self._connection: WireConnection | None = None
        self._fitness: Fitness | None = None
        self._known: dict[str, str] = {}
        self._trouble = ""
        self._stopping = asyncio.Event()

    # The port `postroom.bus.host.BusHost`.

    @property
    def address(self) -> BusAddress:
        """All named servers, including those that were down at the start."""
        return self._address(self._servers)

    @property
    def version(self) -> str:
        """The version of the oldest server."""
        return self._fit.version

    @property
    def pid(self) -> int:
        """0: none of them is a child of this process."""
        return 0

    @property
    def replicas(self) -> int:
        """Three on a cluster, one on a single server."""
        return self._fit.replicas

    @property
    def doubts(self) -> tuple[str, ...]:
        """Warnings for people about these servers, a sentence each."""
        return self._fit.doubts

    async def check(self, system: WireConnection) -> None:  # noqa: ARG002 (this class has its own)
        """Ask all servers again (see `BusHost.check`)."""
        await self._retry(self._examine)

    async def trust_proxies(self, proxies: Sequence[str]) -> bool:
        """Whether all servers trust these gateways (see `BusHost.trust_proxies`)."""
        return await self._all(lambda report: report.proxies.issuperset(proxies))

    async def trust_operator(
        self,
        operator_jwt: str,  # noqa: ARG002 (the operator has it from `postroom nats config`)
        signers: Sequence[str],
        accounts: Mapping[str, str],  # noqa: ARG002
    ) -> bool:
        """Whether all servers know these signing keys of the operator (see `BusHost.trust_operator`)."""
        return await self._all(lambda report: report.signers.issuperset(signers))

    async def _all(self, knows: Callable[[ServerReport], bool]) -> bool:
        reports = await self._reports()
        complete = len(reports) >= max(report.peers for report in reports)
        return complete and all(knows(report) for report in reports)

    async def start(self) -> None:
        """Examine the servers.

        Raises:
            BusDisconnected: no server answers, or too few.
            ServerFailed: a server has another operator, or lacks something; with the remedy.
        """
        try:
            await self._retry(self._arrive)
        except BaseException:
            await self.stop()
            raise

    async def run(self) -> None:
        """Check the servers until `stop`, and report changes."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._stopping.wait()
                    return
            await self._look()

    async def stop(self) -> None:
        """End `run` and the connection; the servers stay."""
        self._stopping.set()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @property
    def _fit(self) -> Fitness:
        if self._fitness is None:
            raise ServerFailed("the NATS servers were not examined yet; call start first")
        return self._fitness

    # Examining.

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat `step` while servers are missing, for `wait` seconds at most."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._wait
        pauses = Backoff(base=2 * PAUSE, cap=4 * PAUSE)
        while True:
            try:
                return await step()
            except BusDisconnected as error:
                if clock() + PAUSE >= end:
                    raise BusDisconnected(
                        error.message,
                        remedy=error.remedy or "start it, or correct POSTROOM_NATS_URL",
                    ) from error
            await asyncio.sleep(pauses.next())

    async def _arrive(self) -> None:
        """The whole examination, from the greetings to the fitness."""
        heard = await self._greetings()
        for one in heard:
            _check_greeting(one, self._tls is not None)
        self._cluster = heard[0].cluster
        for one in heard[1:]:
            await (await self._connect(one.url)).close()  # each must accept the credential
        if self._connection is None:
            self._connection = await self._connect(*dict.fromkeys((heard[0].url, *self._servers)))
        await self._examine({one.server_id: one.url for one in heard})

    async def _greetings(self) -> list[Greeting]:
        """The greetings of the servers that answer; raises BusDisconnected if none does."""
        results = await asyncio.gather(
            *(greeting(server, self._tls) for server in self._servers), return_exceptions=True
        )
        missing = [result for result in results if isinstance(result, BusDisconnected)]
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, BusDisconnected):
                raise result
        if len(missing) == len(results):
            raise BusDisconnected("; ".join(error.message for error in missing))
        for error in missing:
            log.warning("bus: %s", error.message)
        return [result for result in results if isinstance(result, Greeting)]

    def _address(self, servers: tuple[str, ...]) -> BusAddress:
        return BusAddress(servers, self._tls)

    async def _connect(self, *servers: str) -> WireConnection:
        try:
            return await self._address(servers).connect(
                name="postroom-watch",
                credentials=self._credentials,
                wait=ANSWER,
                on_error=lambda error: log.info("bus: %s", error),
            )
        except Unauthorized as error:
            raise ServerFailed(
                f"the server at {servers[0]} trusts another operator than this post room's",
                remedy=REMEDY,
            ) from error

    async def _examine(self, greeted: Mapping[str, str] = MappingProxyType({})) -> None:
        """Ask every server about itself, and check the answers.

        Args:
            greeted: id -> address of servers that must be among them.
        """
        reports = await self._reports(greeted)
        present = {report.server_id for report in reports}
        for server_id, url in greeted.items():
            if server_id not in present:
                raise ServerFailed(
                    f"the server at {url} is not of the same cluster as the others",
                    remedy="name servers of one cluster in POSTROOM_NATS_URL",
                )
        self._fitness = assess(reports, self._proxy())
        if not await share_accounts(self._present, len(reports)):
            raise ServerFailed(
                "a server's resolver does not keep accounts that are pushed to it (resolver type: full)",
                remedy=REMEDY,
            )
        self._known = {report.name: report.server_id for report in reports}

    async def _reports(self, expected: Collection[str] = ()) -> list[ServerReport]:
        """The reports of the cluster's servers.

        Raises:
            ServerFailed: no server answers, so their system account is another.
        """
        reports = await server_reports(self._present, expected)
        ours = [report for report in reports if report.cluster == self._cluster]
        if not ours:
            raise ServerFailed(
                "the NATS answers nothing to this post room's system account (system_account)",
                remedy=REMEDY,
            )
        return ours

    @property
    def _present(self) -> WireConnection:
        if self._connection is None:
            raise BusDisconnected("there is no connection to the NATS")
        return self._connection

    # Watching.

    async def _look(self) -> None:
        """Check once; report a problem and end nothing for it."""
        try:
            if self._connection is not None and self._connection.lost is not None:
                await self._connect_again(self._connection)
            reports = await self._reports()
            trouble = ""
            self._fitness = replace(assess(reports, self._proxy()), replicas=self.replicas)
            self._compare(reports)
        except PostroomError as error:
            trouble = str(error)
        except Exception as error:
            # An error in this task would end the post room, which needs the bus and not this look at it.
            log.exception("the servers could not be looked at")
            trouble = repr(error)
        if trouble != self._trouble:
            self._trouble = trouble
            self._report(f"the NATS: {trouble}" if trouble else "the NATS is well again")

    async def _connect_again(self, lost: WireConnection) -> None:
        """Connect again after a server has ended the connection for good, as it does without our account."""
        await lost.close()
        connection = await self._connect(*self._servers)
        if self._stopping.is_set():
            await connection.close()
        else:
            self._connection = connection

    def _compare(self, reports: Sequence[ServerReport]) -> None:
        now = {report.name: report.server_id for report in reports}
        for name in sorted(self._known.keys() - now.keys()):
            self._report(f"the server {name} of the NATS does not answer")
        for name in sorted(now.keys() - self._known.keys()):
            self._report(f"the server {name} of the NATS has come")
        self._known = now


def _check_greeting(heard: Greeting, tls: bool) -> None:
    check_version(heard.version, f"the server at {heard.url}")
    if not tls and heard.info.get("tls_required"):
        raise ServerFailed(f"the server at {heard.url} demands TLS", remedy="write tls://")
    if "nonce" not in heard.info:
        raise ServerFailed(
            f"the server at {heard.url} has no operator (it does not run in operator mode)",
            remedy=REMEDY,
        )
