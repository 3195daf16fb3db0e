"""One connection to the server: opened, kept, watched, ended.

What nats-py tells in callbacks (connected again, denied, closed for good) becomes something that a waiting call
can await.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from postroom.bus.address import BusAddress
from postroom.bus.counters import Counters
from postroom.bus.nats.client import RobustClient
from postroom.bus.nats.dialing import next_server, places, reachable, remaining
from postroom.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    RequestTimeout,
    Unauthorized,
)
from postroom.observe import get_logger

log = get_logger("postroom.bus")

PING_INTERVAL = 10
"""Seconds between the client's own pings; two unanswered ones end a connection that hangs."""

_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
_UNAUTHORIZED = (
    "authorization violation",
    "authorization failed",
    "authentication expired",
    "authentication revoked",
)

OnFrame = Callable[[Msg], Awaitable[None]]


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


class Link:
    """A connection that comes back by itself until it is closed or the server ends it for good.

    Args:
        counters: of the bus.
        on_error: told about errors that no call waits for.
    """

    def __init__(self, counters: Counters, on_error: Callable[[Exception], None] | None) -> None:
        self.client = RobustClient()
        self.counters = counters
        self.generation = 0
        self.lost: PostroomError | None = None
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_error = on_error
        self._up = False
        self._closing = False
        self._opened = False
        self._reconnected_at = float("-inf")
        self._denials: dict[tuple[str, str], set[asyncio.Future[Any]]] = {}
        self._unauthorized: PostroomError | None = None
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # State.

    @property
    def up(self) -> bool:
        """Whether frames can be sent now."""
        return self._up and self.client.is_connected

    @property
    def recovering(self) -> bool:
        """Whether the connection came back so lately that the server may still be loading its streams."""
        return asyncio.get_running_loop().time() - self._reconnected_at < 10

    async def ready(self, deadline: float | None) -> None:
        """Wait until frames can be sent, until `deadline` of the loop's clock or for ever.

        Raises:
            BusDisconnected: not within the deadline, or never again.
        """
        while not self.up:
            if self.lost is not None:
                raise type(self.lost)(self.lost.message)
            await asyncio.wait({self.turn}, timeout=remaining(deadline))
            if not self.up and deadline is not None and remaining(deadline) == 0:
                raise BusDisconnected("there is no connection to the bus")

    def report(self, error: Exception) -> None:
        """Tell the log and the owner about an error that no call waits for."""
        log.warning("bus: %s", error, exc_info=None if isinstance(error, PostroomError) else error)
        if self._on_error is not None:
            self._on_error(error)

    # Opening and closing.

    async def open(
        self,
        address: BusAddress,
        *,
        name: str,
        credentials: Credentials | None,
        timeout: float,
    ) -> None:
        """Connect.

        Raises:
            BusDisconnected: no server answered within `timeout` seconds.
            Unauthorized: the server refused the credential.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        await reachable(address.servers, deadline)
        connecting = asyncio.ensure_future(
            self.client.connect(
                list(address.servers),
                name=name,
                tls=address.tls,
                tls_hostname=address.tls_name or None,
                tls_handshake_first=address.tls_first,
                error_cb=self._error,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                closed_cb=self._closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,  # ty: ignore[invalid-argument-type] (a sleep: fractions work)
                connect_timeout=2,
                ping_interval=PING_INTERVAL,
                reconnect_to_server_handler=next_server,
                **(credentials.options() if credentials else {}),
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
        self._up = self._opened = True

    async def reconnect(self, deadline: float) -> None:
        """End the connection and make it again, with what the credentials' callbacks now return."""
        await self.settle(deadline)
        generation = self.generation
        await self.client.force_reconnect()
        while self.generation == generation:
            if remaining(deadline) == 0 or self.lost is not None:
                raise BusDisconnected("the connection did not come back")
            await asyncio.wait({self.turn}, timeout=remaining(deadline))

    async def close(self) -> None:
        """End the connection for good."""
        self._closing = True
        try:
            async with asyncio.timeout(5):
                await self.client.end()
        except (OSError, TimeoutError, nats_errors.Error) as error:
            log.debug("bus: the connection did not end in order: %r", error)
        self.client.hang_up()
        await asyncio.sleep(0)  # lets the loop take note
        if self.lost is None:
            self.lost = BusDisconnected("the bus was closed")
        self._advance()

    # Frames.

    async def send(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Give a frame to the connection; while it is broken, a bounded number is kept for later.

        Raises:
            MessageTooLarge: over the server's limit.
            BusDisconnected: closed, or too much waits for the connection to come back.
            InvalidInput: the subject is malformed.
        """
        self.check_size(payload, headers)
        try:
            await self.client.publish(subject, payload, reply=reply, headers=headers or None)
        except nats_errors.MaxPayloadError as error:
            raise MessageTooLarge("the message is over the bus's limit") from error
        except (nats_errors.BadSubjectError, nats_errors.BadHeaderError) as error:
            raise InvalidInput(f"{subject!r} cannot be published: {error}") from error
        except (nats_errors.Error, OSError) as error:
            raise self.lost or BusDisconnected(f"the bus takes nothing: {error}") from error

    def check_size(self, payload: bytes, headers: dict[str, str] | None) -> None:
        """Refuse what the server would cut the connection for.

        Raises:
            MessageTooLarge: headers and payload are over the server's limit.
        """
        size = len(payload)
        if headers:
            size += 14 + sum(len(k.encode()) + len(v.encode()) + 4 for k, v in headers.items())
        if size > self.client.max_payload:
            raise MessageTooLarge(
                f"the message has {size} bytes, the bus's limit is {self.client.max_payload}"
            )

    async def settle(self, deadline: float) -> None:
        """Return when the server has worked through everything that was sent so far.

        Raises:
            RequestTimeout: not before `deadline`.
            BusDisconnected: there is no connection.
        """
        while True:
            await self.ready(deadline)
            turn, pong = self.turn, self.client.ping()
            await asyncio.wait(
                {pong, turn}, timeout=remaining(deadline), return_when=asyncio.FIRST_COMPLETED
            )
            if pong.done():
                return
            if not turn.done():
                raise RequestTimeout("the bus does not answer")

    async def listen(self, subject: str, on_frame: OnFrame, *, queue: str = "") -> NatsSubscription:
        """Receive frames; returns when the server knows the subscription.

        Raises:
            Forbidden: this identity may not subscribe there.
            RequestTimeout, BusDisconnected: the server did not confirm it.
        """
        deadline = asyncio.get_running_loop().time() + 5
        await self.ready(deadline)
        denied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self.watching("subscription", subject, denied):
            try:
                sub = await self.client.subscribe(subject, queue=queue, cb=on_frame)
            except nats_errors.BadSubjectError as error:
                raise InvalidInput(f"{subject!r} is not a subject") from error
            except (nats_errors.Error, OSError) as error:
                raise self.lost or BusDisconnected(f"the bus takes nothing: {error}") from error
            await self.settle(deadline)
            if denied.done():
                await self.forget(sub)
                denied.result()
        return sub

    async def forget(self, sub: NatsSubscription) -> None:
        """End a subscription at once."""
        try:
            await sub.unsubscribe()
        except (nats_errors.Error, OSError) as error:
            log.debug("bus: a subscription did not end in order: %r", error)

    @contextmanager
    def watching(self, verb: str, subject: str, waiting: asyncio.Future[Any]) -> Generator[None]:
        """Let `waiting` fail with `Forbidden` when the server denies `verb` ("publish") on `subject`.

        The server names only the subject of what it denied, in an error line of its own; nats-py gives that line
        in lower case.
        """
        key = (verb, subject.lower())
        self._denials.setdefault(key, set()).add(waiting)
        try:
            yield
        finally:
            self._denials[key].discard(waiting)
            if not self._denials[key]:
                del self._denials[key]

    # nats-py's callbacks.

    async def _error(self, error: Exception) -> None:
        text = str(error).lower()
        if denied := _DENIED.search(text):
            self._deny(denied[1], denied[2])
        elif any(words in text for words in _UNAUTHORIZED):
            self._refuse()
        elif isinstance(error, nats_errors.SlowConsumerError):
            self.counters.dropped += 1
            self.report(error)
        elif isinstance(error, PostroomError):
            self.counters.ignored += 1
            self.report(error)
        elif isinstance(error, (OSError, TimeoutError, nats_errors.Error)):
            log.debug("bus: %r", error)  # a connection that broke: `statistics` counts it
        else:
            self.report(error)

    def _refuse(self) -> None:
        """The server does not take the credential; told once for each outage, since it is tried again."""
        if self._unauthorized is None:
            self._unauthorized = Unauthorized("the bus refused the credential")
            if self._opened:
                self.report(self._unauthorized)
        if not self._refused.done():
            self._refused.set_result(None)

    def _deny(self, verb: str, subject: str) -> None:
        self.counters.refused += 1
        error = Forbidden(f"this identity may not use {subject!r} for a {verb}")
        waiting = self._denials.get((verb, subject), set())
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        if not waiting:
            self.report(error)

    async def _disconnected(self) -> None:
        self._up = False

    async def _reconnected(self) -> None:
        self._up = True
        self._unauthorized = None
        self.generation += 1
        self.counters.reconnects += 1
        self._reconnected_at = asyncio.get_running_loop().time()
        self._advance()

    async def _closed(self) -> None:
        self._up = False
        if self._closing or self.lost is not None:
            return
        last = str(self.client.last_error or "").lower()
        refused = any(words in last for words in _UNAUTHORIZED)
        kind = Unauthorized if refused else BusDisconnected
        self.lost = kind(f"the bus ended the connection for good: {last or 'no reason given'}")
        self._advance()
        self.report(self.lost)

    def _advance(self) -> None:
        """Wake everything that waits for a change of the connection."""
        turn, self.turn = self.turn, asyncio.get_running_loop().create_future()
        turn.set_result(None)
