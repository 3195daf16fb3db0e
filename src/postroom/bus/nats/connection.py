"""The bus's connection as one that `postroom_a2a` can use: beside everything else that goes over it.

Answers to calls arrive by the subscription that the bus has for answers anyway (`Replies`); a second one would have the
server send each of them twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroom.bus.nats.interest import Interest, OnFrame
from postroom.bus.nats.link import Link
from postroom.bus.nats.replies import Replies
from postroom.errors import InvalidInput, PostroomError
from postroom_a2a.nats.port import Frame


class Route:
    """Interest in answers, as a subscription of its own would be."""

    def __init__(self, replies: Replies, prefix: str, on_frame: OnFrame) -> None:
        self._replies = replies
        self._prefix = prefix
        replies.route(prefix, on_frame)

    async def unsubscribe(self) -> None:
        """End it at once."""
        self._replies.unroute(self._prefix)

    async def drain(self) -> None:
        """End it; nothing is under way."""
        self._replies.unroute(self._prefix)


class Listening:
    """A subscription, ended as the port asks for."""

    def __init__(self, link: Link, interest: Interest) -> None:
        self._link = link
        self._interest = interest

    async def unsubscribe(self) -> None:
        """End it at once."""
        await self._interest.unsubscribe()

    async def drain(self) -> None:
        """End it when what the server has sent was handled.

        Raises:
            PostroomError: as `Link.drain`.
        """
        await self._link.drain(self._interest)


class BusConnection:
    """Keeps the port `postroom_a2a.nats.port.Connection`.

    Args:
        link: of the bus.
        replies: of the bus.
        uid: whom the connection authenticated as.
    """

    def __init__(self, link: Link, replies: Replies, uid: str) -> None:
        self._link = link
        self._replies = replies
        self._own = f"_I.{uid}."

    @property
    def max_payload(self) -> int:
        """As `Connection.max_payload`."""
        return self._link.client.max_payload

    @property
    def is_closed(self) -> bool:
        """As `Connection.is_closed`."""
        return self._link.lost is not None

    @property
    def is_connected(self) -> bool:
        """As `Connection.is_connected`."""
        return self._link.up

    @property
    def lost(self) -> PostroomError | None:
        """As `Link.lost`."""
        return self._link.lost

    @property
    def changed(self) -> asyncio.Future[None]:
        """As `Link.turn`."""
        return self._link.turn

    def watch_denials(self, denied: Callable[[PostroomError, str], bool]) -> None:
        """As `postroom_a2a.nats.port.watch_denials`."""
        self._link.denial_watchers.add(denied)

    async def reconnect(self) -> None:
        """Leave the server, which gives no sign of life, and connect again."""
        await self._link.client.force_reconnect()

    def new_inbox(self) -> str:
        """As `Connection.new_inbox`; here an answer names who gives it, so there is none for anybody.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput("on this bus a reply subject names who answers")

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """As `Connection.publish`.

        Raises:
            PostroomError: as `Link.send`.
        """
        await self._link.send(subject, payload, reply=reply, headers=headers)

    async def subscribe(
        self, subject: str, queue: str = "", cb: OnFrame | None = None
    ) -> Listening | Route:
        """As `Connection.subscribe`; returns when the server knows it.

        Raises:
            PostroomError: as `Link.listen`.
        """
        if cb is None:
            raise InvalidInput("a subscription needs somebody who takes its frames")
        prefix, _, last = subject.rpartition(".")
        if subject.startswith(self._own) and last == "*" and subject.count(".") == 3:
            return Route(self._replies, prefix, cb)
        return Listening(self._link, await self._link.listen(subject, cb, queue=queue))

    async def subscribe_now(
        self, subject: str, arrived: Callable[[Frame], None], queue: str = ""
    ) -> Listening | Route:
        """As `subscribe`, for a function that never waits.

        Raises:
            As `subscribe`.
        """

        async def take(frame: Frame) -> None:
            arrived(frame)

        return await self.subscribe(subject, queue, take)

    async def flush(self, timeout: int = 10) -> None:
        """As `Connection.flush`.

        Raises:
            PostroomError: as `Link.settle`.
        """
        await self._link.settle(asyncio.get_running_loop().time() + timeout)
