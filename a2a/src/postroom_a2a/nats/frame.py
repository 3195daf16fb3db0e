"""Messages on the wire: a received one, header blocks, and the line that publishes one. Pure.

Subjects and header values may hold any byte. What is not UTF-8 becomes a lone surrogate, and the same byte again when
it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from postroom_a2a.bounds import MAX_CLIENT_LINE
from postroom_a2a.errors import InvalidInput

_VERSION = b"NATS/1.0"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LOST = "surrogateescape"
_BREAKS = frozenset("\r\n\t")


class WireFrame:
    """A received message, an implementation of the port `Frame`; it reads the headers when they are first asked for.

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
        """NATS headers, or None; a status of the server is the header `Status`."""
        if self._block:
            self._headers = read_headers(self._block)
            self._block = b""
        return self._headers

    def __repr__(self) -> str:
        """Without the payload, which may be large or secret."""
        return f"<frame on {self.subject!r}, {len(self.data)} bytes>"


def read_headers(block: bytes) -> dict[str, str]:
    """The headers in a block; a line that is not a header is left out, and the last of equal names counts."""
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


def publish_line(subject: str, reply: str, block: int, size: int) -> bytes:
    """The control line of a message with `size` bytes, of which the first `block` are its headers.

    Raises:
        InvalidInput: a subject is malformed, so that the line would be another command.
    """
    if block:
        middle = f"{reply} {block}" if reply else f"{block}"
        line = f"HPUB {subject} {middle} {size}"
    else:
        line = f"PUB {subject} {reply} {size}" if reply else f"PUB {subject} {size}"
    if (
        not subject
        or line.count(" ") != 2 + bool(reply) + bool(block)
        or not (line.isprintable() or _BREAKS.isdisjoint(line))
        or len(line) > MAX_CLIENT_LINE - 2
    ):
        raise InvalidInput(f"{subject[:100]!r} cannot be published, or {reply[:100]!r} answered")
    return line.encode("utf-8", _LOST) + b"\r\n"


def is_subject(subject: str) -> bool:
    """Whether `subject` can be subscribed, or be the name of a queue group."""
    return (
        len(subject.split()) == 1
        and subject.strip() == subject
        and len(subject) < MAX_CLIENT_LINE // 2
    )


def write_headers(headers: Mapping[str, str]) -> bytes:
    """The header block of a message.

    Raises:
        InvalidInput: a name is malformed, or a value is not one line.
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
        raise InvalidInput(f"{name!r} is not the name of a header")
    if len(_GOOD) < _GOOD_KEPT:
        _GOOD.add(name)
