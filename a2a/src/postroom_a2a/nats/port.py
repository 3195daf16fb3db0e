"""The connection that the library needs: a few methods, which nats-py's client has too.

Our own is `WireConnection`; a connected `nats.aio.client.Client` is a `Connection` as it is (`natspy` adapts it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from postroom_a2a.errors import BusDisconnected, PostroomError, ProtocolViolation, RequestTimeout

NO_RESPONDERS = "503"

FAULTS = (OSError, BusDisconnected, RequestTimeout)
"""What a connection raises that takes nothing, or whose server does not answer."""


class Frame(Protocol):
    """A message as it was received."""

    @property
    def subject(self) -> str:
        """It was published to."""
        ...

    @property
    def reply(self) -> str:
        """Subject for an answer, "" if none is wanted."""
        ...

    @property
    def data(self) -> bytes:
        """The payload."""
        ...

    @property
    def headers(self) -> Mapping[str, str] | None:
        """NATS headers; a status of the server is the header `Status`."""
        ...


class Subscription(Protocol):
    """Interest in a subject."""

    async def unsubscribe(self) -> None:
        """End it at once."""
        ...

    async def drain(self) -> None:
        """End it when what the server has sent already was handled."""
        ...


Arrived = Callable[..., Awaitable[None]]
"""`async def arrived(frame: Frame) -> None`; called for one frame of a subscription after the other."""


class Connection(Protocol):
    """An open connection to a NATS server."""

    @property
    def max_payload(self) -> int:
        """Bytes that headers and payload of one message may have, as the server says."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether it is up now."""
        ...

    def new_inbox(self) -> str:
        """A subject that nobody else has, under a prefix that this connection may subscribe."""
        ...

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send; waits while too much is unsent."""
        ...

    async def subscribe(
        self, subject: str, queue: str = "", cb: Arrived | None = None
    ) -> Subscription:
        """Receive what is published from now on."""
        ...

    async def flush(self, timeout: int = 10) -> None:
        """Return when the server has worked through everything that was sent."""
        ...


def watch_denials(connection: Connection, denied: Callable[[PostroomError, str], bool]) -> None:
    """Have `denied` called with each subject to which a publish was denied, where the connection tells.

    Only as long as the function's object lives. It answers whether somebody waited for that.
    """
    watch = getattr(connection, "watch_denials", None)
    if watch is not None:
        watch(denied)


def change_of(connection: Connection) -> asyncio.Future[None] | None:
    """A future that is done when the connection next comes back or ends for good; None where it does not tell.

    When it is done the connection has another one.
    """
    return getattr(connection, "changed", None)


async def receive(
    connection: Connection, subject: str, arrived: Callable[[Frame], None], *, queue: str = ""
) -> Subscription:
    """Subscribe with a function that never waits.

    A connection that has `subscribe_now` calls it as it reads the frame; another from the task of the subscription.
    """
    subscribe_now = getattr(connection, "subscribe_now", None)
    if subscribe_now is not None:
        return await subscribe_now(subject, arrived, queue)

    async def take(frame: Frame) -> None:
        arrived(frame)

    return await connection.subscribe(subject, queue=queue, cb=take)


async def settle(connection: Connection, *subscriptions: Subscription) -> None:
    """Return when the server has worked through everything that was sent, `subscriptions` above all.

    nats-py writes the PING of a flush past what its flusher has not written yet. When the PONG is there, that is
    written too, so the second PING comes behind it.

    Raises:
        Forbidden: a subscription was denied (a connection of nats-py does not tell).
    """
    confirm = getattr(connection, "confirm", None)
    if confirm is not None and subscriptions:
        for subscription in subscriptions:
            await confirm(subscription)
        return
    await connection.flush()
    await connection.flush()


def status_of(frame: Frame) -> str:
    """The status that the server sent in place of a message ("503": nobody listens), "" for any other frame.

    Only a frame without payload and without reply subject is one: a peer may write the header, too.
    """
    if frame.data or not frame.headers or frame.reply:
        return ""
    return frame.headers.get("Status", "")


def description_of(frame: Frame) -> str:
    """What the server says about its status, one line; "" where it says nothing."""
    # Where a status has no description, nats-py takes the header after it for one.
    return (frame.headers or {}).get("Description", "").partition("\n")[0].strip()


def size_of(payload: bytes, headers: Mapping[str, str] | None) -> int:
    """Bytes that count against `max_payload`.

    Raises:
        ProtocolViolation: a header would break out of its line.
    """
    size = len(payload)
    if headers:
        for name, value in headers.items():
            if "\r" in value or "\n" in value:
                raise ProtocolViolation(f"the header {name} is not one line")
            size += len(name) + len(value.encode()) + 4
        size += 14
    return size
