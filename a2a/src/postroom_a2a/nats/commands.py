"""The control lines that a client writes. Pure."""

from __future__ import annotations

from postroom_a2a.bounds import MAX_CLIENT_LINE
from postroom_a2a.errors import InvalidInput


def publish_line(subject: str, reply: str, block: int, size: int) -> bytes:
    """That of a message with `size` bytes, of which the first `block` are its headers.

    Raises:
        InvalidInput: a subject is malformed, so that the line would be another command.
    """
    if block:
        middle = f"{reply} {block}" if reply else f"{block}"
        line = f"HPUB {subject} {middle} {size}\r\n"
    else:
        line = f"PUB {subject} {reply} {size}\r\n" if reply else f"PUB {subject} {size}\r\n"
    if (
        not subject
        or line.count(" ") != 2 + bool(reply) + bool(block)
        or line.count("\r") != 1
        or line.count("\n") != 1
        or "\t" in line
        or len(line) > MAX_CLIENT_LINE
    ):
        raise InvalidInput(f"{subject[:100]!r} cannot be published, or {reply[:100]!r} answered")
    return line.encode("utf-8", "surrogateescape")


def is_subject(subject: str) -> bool:
    """Whether it can be subscribed, or be the name of a queue group."""
    return (
        len(subject.split()) == 1
        and subject.strip() == subject
        and len(subject) < MAX_CLIENT_LINE // 2
    )
