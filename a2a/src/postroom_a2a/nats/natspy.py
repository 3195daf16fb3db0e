"""An adapter that makes a program's own connection of nats-py behave as ours: its errors, flush and subscriptions.

This module does not import nats-py: the program that hands us a connection has done so. It adapts any other
implementation of the port `Connection` in the same way.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from postroom_a2a.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    RequestTimeout,
)
from postroom_a2a.nats.connection import WireConnection
from postroom_a2a.nats.port import Arrived, Connection, Frame, Subscription, size_of


def adapted(connection: Connection) -> WireConnection | AdaptedConnection:
    """`connection` itself if it is ours, else an adapter on it."""
    if isinstance(connection, (WireConnection, AdaptedConnection)):
        return connection
    return AdaptedConnection(connection)


class AdaptedConnection:
    """A connection of nats-py with the methods and errors of `WireConnection`.

    It notices neither that the server denied a publish nor that the connection came back: nats-py reports these to
    callbacks, which belong to the program.
    """

    changed: asyncio.Future[None] | None = None
    lost: PostroomError | None = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def max_payload(self) -> int:
        """As `Connection.max_payload`."""
        return self._connection.max_payload

    @property
    def is_closed(self) -> bool:
        """As `Connection.is_closed`."""
        return self._connection.is_closed

    @property
    def is_connected(self) -> bool:
        """As `Connection.is_connected`."""
        return self._connection.is_connected

    def new_inbox(self) -> str:
        """As `Connection.new_inbox`."""
        return self._connection.new_inbox()

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """As `WireConnection.publish`, which raises the same."""
        connection = self._connection
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
            subscription = await self._connection.subscribe(subject, queue=queue, cb=cb)
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
        """
        with _translating():
            for _ in range(2):
                await self._connection.flush(max(1, int(timeout)))

    def watch_denials(self, denied: Callable[[PostroomError, str], bool]) -> None:
        """Do nothing: nats-py reports denials to the program's callbacks only."""

    @property
    def _last_error(self) -> object:
        return getattr(self._connection, "last_error", None)

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

    async def leave(self, subscription: Subscription) -> None:
        """End a subscription without losing what the server sent before it knew.

        nats-py's own `drain` flushes before its UNSUB (see `flush`), so it would lose a message that comes in between.
        """
        unsubscribe = getattr(self._connection, "_send_unsubscribe", None)
        with _translating():
            if unsubscribe is not None:
                await unsubscribe(getattr(subscription, "_id"))  # noqa: B009 (it has no public name)
                await self.flush()
            await subscription.drain()


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
        """End it once what the server has sent already is handled."""
        await self._connection.leave(self._subscription)


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
