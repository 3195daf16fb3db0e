"""What the server needs of each API that it speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tests.fakes.model.script import Conversation, Step

INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS, REASONING_TOKENS = 120, 20, 15, 3
"""Usage of each answer."""


class Dialect(Protocol):
    """A module with these functions."""

    def takes(self, path: str) -> bool:
        """Whether a POST to this path (without its query) is a request for an answer."""
        ...

    def read(self, body: Mapping[str, Any]) -> Conversation:
        """What the request has."""
        ...

    def stream(self, step: Step, path: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The answer as server-sent events. What a slow step waits for comes after the first of them."""
        ...

    def whole(self, step: Step, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer as one document; None where the request wants a stream."""
        ...

    def failure(self, status: int) -> dict[str, Any]:
        """The body of an error."""
        ...


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def words(text: str) -> list[str]:
    """The pieces in which a text is streamed."""
    *most, last = text.split(" ")
    return [*(f"{word} " for word in most), last]
