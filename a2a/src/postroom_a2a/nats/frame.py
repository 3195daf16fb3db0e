"""A message as it was received, and the header blocks of messages. Pure.

Subjects and header values may hold any byte. What is not UTF-8 becomes a lone surrogate, and the same byte again when
it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from postroom_a2a.errors import InvalidInput

_VERSION = b"NATS/1.0"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LOST = "surrogateescape"


class WireFrame:
    """A received message; it keeps the port `Frame`. The headers are read when they are first asked for.

    Attributes:
        reply: subject for an answer, "" if none is wanted.
    """

    __slots__ = ("_block", "_headers", "data", "reply", "subject")

    def __init__(self, subject: bytes, reply: bytes, block: bytes, data: bytes) -> None:
        self.subject = subject.decode("utf-8", _LOST)
        self.reply = reply.decode("utf-8", _LOST) if reply else ""
        self.data = data
        self._block = block
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str] | None:
        """NATS headers, None for none; a status of the server is the header `Status`."""
        if self._block:
            self._headers = read_headers(self._block)
            self._block = b""
        return self._headers

    def __repr__(self) -> str:
        """Without the payload, which may be large or secret."""
        return f"<frame on {self.subject!r}, {len(self.data)} bytes>"


def read_headers(block: bytes) -> dict[str, str]:
    """The headers in a block; a line that is none is left out, and of equal names the last one counts."""
    lines = block.split(b"\r\n")
    headers: dict[str, str] = {}
    first = lines[0]
    if first.startswith(_VERSION) and len(first) > len(_VERSION):
        status, _, described = first[len(_VERSION) :].strip().partition(b" ")
        headers["Status"] = status.decode("utf-8", _LOST)
        if described:
            headers["Description"] = described.strip().decode("utf-8", _LOST)
    for line in lines[1:]:
        name, mark, value = line.partition(b":")
        if mark and name and name.isascii():
            headers[name.strip().decode()] = value.strip().decode("utf-8", _LOST)
    return headers


def write_headers(headers: Mapping[str, str]) -> bytes:
    """The block of a message with these headers.

    Raises:
        InvalidInput: a name is none, or a value is not one line.
    """
    lines = ["NATS/1.0"]
    for name, value in headers.items():
        if name not in _GOOD:
            _check(name)
        if "\n" in value or "\r" in value:
            raise InvalidInput(f"the header {name} is not one line")
        lines.append(f"{name}: {value}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("utf-8", _LOST)


_GOOD: set[str] = set()
_GOOD_KEPT = 256


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is no name of a header")
    if len(_GOOD) < _GOOD_KEPT:
        _GOOD.add(name)
