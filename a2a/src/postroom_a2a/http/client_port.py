"""The port of the A2A client: one exchange over HTTP. The library has no HTTP implementation of its own.

`postroom.http.exchange` implements it twice: with the guard of what leaves the machine, and without. A program of its
own gives any function over the HTTP library that it uses.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request.

    Attributes:
        headers: names in lower case, without those of the connection.
        silence: seconds that the head of the answer, and each further piece, may take to come.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    silence: float = 60.0


class HttpReply(Protocol):
    """An answer after its head."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes.

        Raises:
            PeerError: it broke off.
            RequestTimeout: nothing came for the request's `silence`.
        """


HttpExchange = Callable[[HttpRequest], AbstractAsyncContextManager[HttpReply]]
"""Sends a request, and gives its answer until the `with` block ends. No redirect is followed.

Raises:
    NoResponders: the server was not reached; nothing was sent.
    PeerError: the connection broke; the server may have acted.
    RequestTimeout: the head did not come in time.
    ProtocolViolation: the answer is not HTTP.
"""
