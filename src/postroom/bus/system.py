"""What is asked of a server over its system account needs no more of a connection than this."""

from __future__ import annotations

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
