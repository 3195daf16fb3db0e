"""What is asked of a server over its system account needs no more of a connection than this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Reply(Protocol):
    """An answer of the server."""

    @property
    def data(self) -> bytes:
        """Its payload."""


class SystemConnection(Protocol):
    """A connection of a user of the system account; nats-py's client is one."""

    async def request(self, subject: str, payload: bytes = ..., timeout: float = ...) -> Reply:
        """The answer to a request; the client's own errors pass through."""
        ...


class SystemSubscription(Protocol):
    """Interest in the answers of several servers."""

    async def unsubscribe(self) -> None:
        """End it."""
        ...


class ClusterConnection(SystemConnection, Protocol):
    """A connection over which every server of a cluster can be asked."""

    def new_inbox(self) -> str:
        """A subject for answers."""
        ...

    async def subscribe(
        self, subject: str, *, cb: Callable[[Reply], Awaitable[None]]
    ) -> SystemSubscription:
        """Receive answers."""
        ...

    async def publish(self, subject: str, payload: bytes = ..., reply: str = ...) -> None:
        """Ask."""
        ...
