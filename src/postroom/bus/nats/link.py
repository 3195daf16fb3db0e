"""The library's connection with the bus's additions: counters, reports and deadlines; and its frames as messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from postroom.bus.acceptance import MSG_ID
from postroom.bus.address import BusAddress
from postroom.bus.port import Counters, Message
from postroom.errors import (
    BusDisconnected,
    Forbidden,
    MessageTooLarge,
    PostroomError,
)
from postroom.observe import get_logger
from postroom.protocol.subjects import sender_of
from postroom_a2a.nats import Credentials, WireConnection
from postroom_a2a.nats.port import Frame, size_of
from postroom_a2a.nats.subscriptions import WireSubscription

log = get_logger("postroom.bus")

OnFrame = Callable[[Frame], Awaitable[None]]

LISTEN_TIMEOUT = 5.0
"""Seconds for the server's confirmation of a subscription."""


class Link:
    """One identity's connection, opened once.

    Args:
        on_error: gets errors that no call waits for.
    """

    connection: WireConnection

    def __init__(self, counters: Counters, on_error: Callable[[Exception], None] | None) -> None:
        self.counters = counters
        self._on_error = on_error

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
        self.connection = await address.connect(
            name=name,
            credentials=credentials,
            wait=timeout,
            on_error=self._failed,
        )

    def _failed(self, error: Exception) -> None:
        """Report an error of the connection; `statistics` counts lost servers and reconnects."""
        if isinstance(error, BusDisconnected) and self.lost is None:
            log.debug("bus: %s", error)
            return
        if isinstance(error, Forbidden):
            self.counters.refused += 1
        self.report(error)

    def report(self, error: Exception) -> None:
        """Give the log and the owner an error that no call waits for."""
        log.warning("bus: %s", error, exc_info=None if isinstance(error, PostroomError) else error)
        if self._on_error is not None:
            self._on_error(error)

    # State.

    @property
    def lost(self) -> PostroomError | None:
        """Why it is gone for good; None while it works."""
        return self.connection.lost

    async def ready(self, deadline: float | None) -> None:
        """Wait until the connection can send, until `deadline` of the loop's clock or for ever.

        Raises:
            BusDisconnected: not by the deadline, or never again.
        """
        await self.connection.ready(remaining(deadline))

    # Frames.

    async def send(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Give a frame to the connection, which keeps a bounded number while it is broken.

        Raises:
            MessageTooLarge: over the server's limit.
            BusDisconnected: closed, or too many frames wait for the connection.
            InvalidInput: the subject is malformed.
        """
        await self.connection.publish(subject, payload, reply, headers)

    def check_size(self, payload: bytes, headers: dict[str, str]) -> None:
        """Raise `MessageTooLarge` for headers and payload over the server's limit, before the server sees them."""
        size, limit = size_of(payload, headers), self.connection.max_payload
        if size > limit:
            raise MessageTooLarge(f"the message has {size} bytes, the bus's limit is {limit}")

    async def settle(self, deadline: float) -> None:
        """Return when the server has processed everything sent so far.

        Raises:
            RequestTimeout: not by `deadline`.
        """
        await self.connection.settle(remaining(deadline) or 0.0)

    async def listen(self, subject: str, on_frame: OnFrame, *, queue: str = "") -> WireSubscription:
        """Receive frames; returns when the server has confirmed the subscription.

        Raises:
            Forbidden: this identity may not subscribe there.
            RequestTimeout, BusDisconnected: the server did not confirm it.
        """
        await self.connection.ready(LISTEN_TIMEOUT)
        subscription = await self.connection.subscribe(subject, queue, on_frame)
        try:
            await self.connection.confirm(subscription, LISTEN_TIMEOUT)
        except BaseException as error:
            if isinstance(error, Forbidden):
                self.counters.refused += 1
            await subscription.unsubscribe()
            raise
        return subscription

    async def close(self) -> None:
        """End the connection for good."""
        await self.connection.close()


def remaining(deadline: float | None) -> float | None:
    """Seconds of the loop's clock until `deadline`, never negative; None for no deadline."""
    if deadline is None:
        return None
    return max(0.0, deadline - asyncio.get_running_loop().time())


def live_message(frame: Frame) -> Message:
    """The message of a frame that no stream stored."""
    headers = dict(frame.headers or {})
    return Message(
        id=headers.get(MSG_ID, ""),
        sender_uid=sender_of(frame.subject),
        subject=frame.subject,
        payload=frame.data,
        metadata=headers,
        timestamp=time.time(),
        reply_to=frame.reply,
    )


def stored_message(
    subject: str,
    payload: bytes,
    headers: Mapping[str, str] | None,
    sequence: int,
    stored_at: float,
) -> Message:
    """The message of a stored record."""
    metadata = dict(headers or {})
    return Message(
        metadata.get(MSG_ID, ""),
        sender_of(subject),
        subject,
        payload,
        metadata,
        stored_at,
        sequence,
    )
