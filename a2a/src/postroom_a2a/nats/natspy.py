"""A program's own connection of nats-py: an adapter for callers, and for servers one of ours to the same nats-servers.

This module does not import nats-py: the program that hands us a connection has done so. It adapts any other
implementation of the port `Connection` in the same way.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from postroom_a2a.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    RequestTimeout,
)
from postroom_a2a.nats.connection import WireConnection
from postroom_a2a.nats.options import Credentials, Options, ServerAddress
from postroom_a2a.nats.port import Arrived, Connection, Frame, Subscription, size_of
from postroom_a2a.nats.servers import Pool

_LONGEST_FLUSH = 86_400
"""Seconds; nats-py itself leaves a server that is silent for much less."""


def adapted(connection: Connection) -> WireConnection | AdaptedConnection:
    """`connection` itself if it is ours, else an adapter on it."""
    if isinstance(connection, (WireConnection, AdaptedConnection)):
        return connection
    return AdaptedConnection(connection)


def to_serve_on(connection: Connection) -> tuple[WireConnection, bool]:
    """The connection on which a server takes requests, and whether the server has to open and close it.

    nats-py's reader ends at the first frame that it cannot read, and the client stays connected and hears nothing; so
    whoever may publish to a server could silence it. In place of a connection of nats-py a server has one of ours, to
    the same servers with the same login.

    Raises:
        InvalidInput: `connection` is another one, or its servers or its login cannot be had.
    """
    if isinstance(connection, AdaptedConnection):
        connection = connection.connection
    if isinstance(connection, WireConnection):
        return connection, False
    theirs = sys.modules.get("nats.aio.client")
    if theirs is None or not isinstance(connection, theirs.Client):
        raise InvalidInput(
            f"a server takes no requests over a {type(connection).__name__}", remedy=_REMEDY
        )
    try:
        return _alike(connection), True
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            "a server takes no requests over this connection of nats-py, whose servers and login cannot be had",
            remedy=_REMEDY,
        ) from error


_REMEDY = "give the server a connection that `postroom_a2a.connect` has made"


def _alike(client: Any) -> WireConnection:
    """A connection of ours, not open yet, with the servers, the login and the TLS of nats-py's `client`.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: nats-py keeps them in another way, or they are not for us.
    """
    options = client.options
    sign, jwt, key = client._signature_cb, client._user_jwt_cb, client._public_nkey  # noqa: SLF001
    user, password, token = options["user"], options["password"], options["token"]
    credentials = None
    if sign is not None:
        credentials = Credentials(
            sign=lambda nonce: base64.b64decode(sign(nonce.decode())),
            jwt=None if jwt is None else lambda: jwt().decode(),
            nkey="" if key is None else key,
        )
    # As nats-py has it: a key goes before a password, that before a token, and the login of an address comes last.
    by_password = sign is None and user is not None and password is not None
    by_token = not by_password and token is not None
    bare = sign is not None or by_password or by_token
    chosen = Options(
        user=user if by_password else "",
        password=password if by_password else "",
        token=token if by_token else "",
        credentials=credentials,
        tls=options.get("tls"),
        tls_first=bool(options["tls_handshake_first"]),
        tls_name=options.get("tls_hostname") or "",
        name=options["name"] or "",
        inbox_prefix=client._inbox_prefix.decode(),  # noqa: SLF001
        timeout=options["connect_timeout"],
        ping_interval=options["ping_interval"],
    )
    return WireConnection(
        Pool([_address(each.uri, bare=bare) for each in client.server_pool]), chosen
    )


def _address(uri: Any, *, bare: bool) -> ServerAddress:
    """The address of one of nats-py's servers, without its login if `bare`; ValueError for a WebSocket."""
    if uri.scheme not in {"nats", "tls"}:
        raise ValueError(f"no connection of ours speaks {uri.scheme}")
    tls = uri.scheme == "tls"
    if bare or uri.username is None:
        return ServerAddress(uri.hostname, uri.port, tls)
    if uri.password is None:
        return ServerAddress(uri.hostname, uri.port, tls, token=uri.username)
    return ServerAddress(uri.hostname, uri.port, tls, uri.username, uri.password)


class AdaptedConnection:
    """A connection of nats-py with the methods and errors of `WireConnection`.

    It notices neither that the server denied a publish nor that the connection came back: nats-py reports these to
    callbacks, which belong to the program.

    Attributes:
        connection: of nats-py.
    """

    changed: asyncio.Future[None] | None = None
    lost: PostroomError | None = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def max_payload(self) -> int:
        """As `Connection.max_payload`."""
        return self.connection.max_payload

    @property
    def is_closed(self) -> bool:
        """As `Connection.is_closed`."""
        return self.connection.is_closed

    @property
    def is_connected(self) -> bool:
        """As `Connection.is_connected`."""
        return self.connection.is_connected

    def new_inbox(self) -> str:
        """As `Connection.new_inbox`."""
        return self.connection.new_inbox()

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """As `WireConnection.publish`, which raises the same."""
        connection = self.connection
        if headers or len(payload) + 512 > connection.max_payload:
            size = size_of(payload, headers)
            if size > connection.max_payload:
                raise MessageTooLarge(
                    f"the message has {size} bytes, the server's limit is {connection.max_payload}"
                )
        with _translating(subject):
            await connection.publish(subject, payload, reply, headers)

    def post(
        self,
        subject: str,  # noqa: ARG002
        payload: bytes = b"",  # noqa: ARG002
        reply: str = "",  # noqa: ARG002
        headers: dict[str, str] | None = None,  # noqa: ARG002
    ) -> bool:
        """As `WireConnection.post`: nats-py's publish always waits."""
        return False

    def post_later(self, subject: str, payload: bytes) -> bool:  # noqa: ARG002
        """As `post`."""
        return False

    async def subscribe(
        self, subject: str, queue: str = "", cb: Arrived | None = None
    ) -> AdaptedSubscription:
        """As `WireConnection.subscribe`, which raises the same."""
        with _translating(subject):
            error_before = self._last_error
            subscription = await self.connection.subscribe(subject, queue=queue, cb=cb)
        return AdaptedSubscription(self, subscription, subject, error_before)

    async def subscribe_now(
        self, subject: str, arrived: Callable[[Frame], None], queue: str = ""
    ) -> AdaptedSubscription:
        """As `subscribe`; the task of the subscription calls `arrived`."""

        async def take(frame: Frame) -> None:
            arrived(frame)

        return await self.subscribe(subject, queue, take)

    async def flush(self, timeout: float = 10) -> None:
        """As `WireConnection.flush`, which raises the same.

        nats-py writes the PING of a flush before what its flusher has not written yet. When the PONG arrives, the
        flusher has written that too, so a second PING comes behind it.

        A flush that ends early, by its time-out or because it is cancelled, leaves a future at which nats-py's reader
        ends when the PONG comes. So it is left to go on by itself.
        """
        flushing = asyncio.create_task(self._flush_twice())
        try:
            await asyncio.wait_for(asyncio.shield(flushing), timeout)
        except TimeoutError as error:
            raise RequestTimeout("the NATS server does not answer") from error

    async def _flush_twice(self) -> None:
        with _translating():
            for _ in range(2):
                await self.connection.flush(_LONGEST_FLUSH)

    def watch_denials(self, denied: Callable[[PostroomError, str], bool]) -> None:
        """Do nothing: nats-py reports denials to the program's callbacks only."""

    @property
    def _last_error(self) -> object:
        return getattr(self.connection, "last_error", None)

    async def confirm(self, subscription: AdaptedSubscription, timeout: float = 10) -> None:
        """Return when the server knows a subscription.

        When the server refuses a subscription, nats-py keeps it; only its last error shows the refusal.

        Raises:
            Forbidden: this identity may not subscribe there.
            As `flush`.
        """
        await self.flush(timeout)
        error, subject = self._last_error, subscription.subject
        denied = f'subscription to "{subject.lower()}"' in str(error)
        if denied and error is not subscription.error_before:
            raise Forbidden(
                f"this connection may not subscribe to {subject}",
                remedy="give its user that permission in nats-server's configuration",
            )


class AdaptedSubscription:
    """A subscription of nats-py, with the connection's last error before it was made."""

    def __init__(
        self,
        connection: AdaptedConnection,
        subscription: Subscription,
        subject: str,
        error_before: object,
    ) -> None:
        self._connection = connection
        self._subscription = subscription
        self.subject = subject
        self.error_before = error_before

    async def unsubscribe(self) -> None:
        """End it at once."""
        with _translating():
            await self._subscription.unsubscribe()

    async def drain(self) -> None:
        """End it once what the server has sent already is handled, and lose nothing that it sent before it knew.

        nats-py's own `drain` flushes before its UNSUB (see `AdaptedConnection.flush`), so it would lose a message that
        comes in between.
        """
        subscription = self._subscription
        unsubscribe = getattr(self._connection.connection, "_send_unsubscribe", None)
        with _translating():
            if unsubscribe is not None:
                await unsubscribe(getattr(subscription, "_id"))  # noqa: B009 (it has no public name)
                await self._connection.flush()
            await subscription.drain()


@contextmanager
def _translating(subject: str = "") -> Generator[None]:
    """Translate nats-py's errors to ours."""
    try:
        yield
    except OSError as error:
        raise BusDisconnected(f"the NATS connection failed: {error}") from error
    except Exception as error:
        theirs = sys.modules.get("nats.errors")
        if theirs is None or not isinstance(error, theirs.Error):
            raise
        if isinstance(error, theirs.MaxPayloadError):
            raise MessageTooLarge("the message is over the server's limit") from error
        if isinstance(error, (theirs.BadSubjectError, theirs.BadHeaderError)):
            raise InvalidInput(f"{subject!r} cannot be used: {error}") from error
        if isinstance(error, theirs.TimeoutError):
            raise RequestTimeout("the NATS server does not answer") from error
        raise BusDisconnected(f"the NATS connection failed: {error}") from error
