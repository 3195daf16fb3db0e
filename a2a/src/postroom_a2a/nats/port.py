"""The port of the NATS connection: the few methods that the library needs, which nats-py's client has too.

Our implementation is `WireConnection`; a connected `nats.aio.client.Client` is a `Connection` too (`natspy` adapts it).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from postroom_a2a.errors import BusDisconnected, ProtocolViolation, RequestTimeout

NO_RESPONDERS = "503"

FAULTS = (OSError, BusDisconnected, RequestTimeout)
"""The errors of a connection that is broken, or whose server does not answer."""


class Frame(Protocol):
    """A received message."""

    @property
    def subject(self) -> str:
        """The subject that the message was published to."""
        ...

    @property
    def reply(self) -> str:
        """The subject for an answer, "" if the sender wants none."""
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
    """A subscription to a subject."""

    async def unsubscribe(self) -> None:
        """End it at once."""
        ...

    async def drain(self) -> None:
        """End it once what the server has sent already is handled."""
        ...


Arrived = Callable[..., Awaitable[None]]
"""`async def arrived(frame: Frame) -> None`; the subscription calls it for one frame after the other."""


class Connection(Protocol):
    """An open connection to a NATS server."""

    @property
    def max_payload(self) -> int:
        """The server's limit for headers and payload of one message, in bytes."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether it has a server now."""
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
        """Return when the server has processed everything that was sent."""
        ...


async def settle(connection: Connection, *subscriptions: Subscription) -> None:
    """Return when the server has processed everything that was sent, and knows `subscriptions`.

    The second flush is for nats-py (`AdaptedConnection.flush` says why).

    Raises:
        Forbidden: the server denied a subscription (a bare connection of nats-py does not notice).
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

    A peer may write that header too, so only a frame without payload and reply subject counts.
    """
    if frame.data or not frame.headers or frame.reply:
        return ""
    return frame.headers.get("Status", "")


def description_of(frame: Frame) -> str:
    """The server's description of its status, one line; "" where it gives none."""
    # Where a status has no description, nats-py takes the header after it for the description.
    return (frame.headers or {}).get("Description", "").partition("\n")[0].strip()


def size_of(payload: bytes, headers: Mapping[str, str] | None) -> int:
    """The bytes that count against `max_payload`; `ProtocolViolation` if a header would break out of its line."""
    size = len(payload)
    if headers:
        for name, value in headers.items():
            if "\r" in value or "\n" in value:
                raise ProtocolViolation(f"the header {name} is not one line")
            size += len(name) + len(value.encode()) + 4
        size += 14
    return size
