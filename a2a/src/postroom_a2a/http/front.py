"""What every HTTP binding needs of the server behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from postroom_a2a.bounds import MAX_LEVELS, MAX_VALUES
from postroom_a2a.http.exchange import Exchange
from postroom_a2a.operations import Operations
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.strict_json import TooMuch, bounded

MAX_BODY = 4 * 1024 * 1024
"""Bytes of a request's body by default."""

BEAT = 15.0
"""Seconds of silence after which a stream gets an empty comment by default, so that both ends notice its end."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for.

    Attributes:
        method: its name in A2A 1.0, whatever the client speaks.
        door: by which binding it came: `a2a+jsonrpc` or `a2a+rest`.
        version: of A2A that the client speaks.
    """

    method: str
    door: str
    version: str


MEDIA_TYPES = frozenset({"application/json", "application/a2a+json"})
"""Media types of a request's body."""


def read_json(exchange: Exchange, body: bytes, most: int = MAX_VALUES) -> Any:
    """The JSON value in a body, which has `most` values at most.

    Raises:
        RpcError: it is of another media type, not JSON, nested too deep, or has too many values.
    """
    if exchange.content_type not in MEDIA_TYPES:
        text = "the Content-Type has to be application/json"
        raise RpcError(Code.CONTENT_TYPE_NOT_SUPPORTED, text)
    try:
        return bounded(body, MAX_LEVELS, most)
    except TooMuch as error:
        raise RpcError(Code.INVALID_REQUEST, f"the body is too much: {error}") from error
    except ValueError as error:
        raise RpcError(Code.PARSE_ERROR, "the body is not JSON") from error


async def _anybody(_exchange: Exchange) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Front:
    """What every binding needs.

    Attributes:
        operations_of: the operations of the agent that a request is for; they speak A2A 1.0. It raises what
            `admit` raises, and `NotFound` for an agent that is not there.
        admit: proves who calls, before the body is read; returns the caller's name, "" without proof. It raises
            `Unauthorized`, `Forbidden`, or `Refused` for one who asks too much.
        streaming: counts an open stream of a caller as long as the context lasts; raises `Refused` for one too many.
        max_body: bytes of a request's body.
        max_values: values of the JSON in it.
        beat: seconds of silence after which a stream gets an empty comment.
    """

    operations_of: Callable[[Exchange, Asked], Awaitable[Operations]]
    admit: Callable[[Exchange], Awaitable[str]] = _anybody
    streaming: Callable[[Exchange, str], AbstractContextManager[None]] = lambda _exchange, _caller: (
        nullcontext()
    )
    max_body: int = MAX_BODY
    max_values: int = MAX_VALUES
    beat: float = BEAT
