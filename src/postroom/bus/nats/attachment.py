"""One connection of nats-py: made with the credential of that moment, and made again by itself when it breaks."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from nats import errors as nats_errors

from postroom.bus.address import BusAddress
from postroom.bus.nats.client import RobustClient
from postroom.bus.nats.dialing import next_server, places, reachable, remaining
from postroom.errors import BusDisconnected, PostroomError, Unauthorized
from postroom.observe import get_logger

log = get_logger("postroom.bus")

PING_INTERVAL = 10
"""Seconds between the client's own pings; two unanswered ones end a connection that hangs."""

UNAUTHORIZED = (
    "authorization violation",
    "authorization failed",
    "authentication expired",
    "authentication revoked",
)
"""What the server's last words say when it does not take the credential (any more)."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a connection proves who it is; both are called at each connect.

    Attributes:
        jwt: the user's JWT.
        sign: the raw Ed25519 signature of the server's nonce.
    """

    jwt: Callable[[], str]
    sign: Callable[[bytes], bytes]

    def options(self) -> dict[str, Any]:
        """Options of nats-py's connect."""
        return {
            "user_jwt_cb": lambda: bytearray(self.jwt(), "ascii"),
            "signature_cb": lambda nonce: base64.b64encode(self.sign(nonce.encode())),
        }


@dataclass(frozen=True, slots=True)
class Dialing:
    """How a link makes its connections.

    Attributes:
        address: where the servers are.
        name: shown by the server's monitoring.
        credentials: None for an open server.
    """

    address: BusAddress
    name: str
    credentials: Credentials | None


class Watcher(Protocol):
    """Who is told what becomes of an attachment."""

    async def failed(self, error: Exception) -> None:
        """nats-py reports an error."""

    def refused(self, attachment: Attachment, error: PostroomError) -> None:
        """The server does not take the credential; told once for each outage, since it is tried again."""

    def came_back(self, attachment: Attachment) -> None:
        """The connection broke and was made again."""

    def ended(self, attachment: Attachment) -> None:
        """It is over for good."""


class Attachment:
    """A connection that comes back by itself until it is closed or the server ends it for good."""

    def __init__(self, watcher: Watcher) -> None:
        self.client = RobustClient()
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watcher = watcher
        self._up = self._begun = False
        self._unauthorized: PostroomError | None = None
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def up(self) -> bool:
        """Whether frames can be sent now."""
        return self._up and self.client.is_connected

    async def open(self, dialing: Dialing, deadline: float, *, first: str = "") -> None:
        """Connect, by preference to the server at the address `first`.

        Raises:
            BusDisconnected: no server answered before `deadline` of the loop's clock.
            Unauthorized: the server refused the credential.
        """
        address = dialing.address
        await reachable(address.servers, deadline)
        self._begun = True
        servers = [first] if first else []
        connecting = asyncio.ensure_future(
            self.client.connect(
                servers + [server for server in address.servers if server != first],
                name=dialing.name,
                tls=address.tls,
                tls_hostname=address.tls_name or None,
                tls_handshake_first=address.tls is not None,
                dont_randomize=bool(first),
                error_cb=self._error,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                closed_cb=self._closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,  # ty: ignore[invalid-argument-type] (a sleep: fractions work)
                connect_timeout=2,
                ping_interval=PING_INTERVAL,
                reconnect_to_server_handler=next_server,
                **(dialing.credentials.options() if dialing.credentials else {}),
            )
        )
        try:
            await asyncio.wait(
                {connecting, self._refused},
                timeout=remaining(deadline),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not connecting.done():
                raise self._unauthorized or BusDisconnected(
                    f"no bus at {places(address.servers)} let us in"
                )
            connecting.result()
        except BaseException as error:
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=1)
            await self.close()
            if isinstance(error, (OSError, nats_errors.Error)):
                raise BusDisconnected(f"cannot connect to the bus: {error}") from error
            raise
        self._up = True

    async def pong(self, deadline: float) -> bool:
        """Whether the server has worked through everything sent so far before `deadline` and a break."""
        pong = self.client.ping()
        await asyncio.wait(
            {pong, self.broken}, timeout=remaining(deadline), return_when=asyncio.FIRST_COMPLETED
        )
        return pong.done()

    async def close(self, timeout: float = 5.0) -> None:
        """End it for good."""
        if not self._begun:
            return
        try:
            async with asyncio.timeout(timeout):
                await self.client.end()
        except (OSError, TimeoutError, nats_errors.Error) as error:
            log.debug("bus: the connection did not end in order: %r", error)
        self.client.hang_up()
        await asyncio.sleep(0)  # lets the loop take note

    # nats-py's callbacks.

    async def _error(self, error: Exception) -> None:
        text = str(error).lower()
        if not any(words in text for words in UNAUTHORIZED):
            await self._watcher.failed(error)
            return
        if self._unauthorized is None:
            self._unauthorized = Unauthorized("the bus refused the credential")
            self._watcher.refused(self, self._unauthorized)
        if not self._refused.done():
            self._refused.set_result(None)

    def _break(self) -> None:
        self._up = False
        if not self.broken.done():
            self.broken.set_result(None)

    async def _disconnected(self) -> None:
        self._break()

    async def _reconnected(self) -> None:
        self.broken = asyncio.get_running_loop().create_future()
        self._up = True
        self._unauthorized = None
        self._watcher.came_back(self)

    async def _closed(self) -> None:
        self._break()
        self._watcher.ended(self)

    def last_words(self) -> tuple[str, bool]:
        """What the server said last, and whether that was about the credential."""
        last = str(self.client.last_error or "").lower()
        return last, any(words in last for words in UNAUTHORIZED)
