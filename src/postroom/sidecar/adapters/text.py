"""Adapter `text`: for programs that read lines and print lines.

A message becomes `nick: text`, further lines of it indented, so that no text can pass for another message.
Each line the program prints answers the last message it was handed; before any, it is a post.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.protocol.text import one_line, printable
from postroom.sidecar.adapters.actions import Action, Incoming, Post, Reply

CONTINUATION = "\n    "


class PlainText:
    """Adapter for programs that know nothing of Postroom."""

    def __init__(self) -> None:
        self._last = ""

    def feed(self, line: str) -> list[Action]:
        """A reply to the last message, or a post; an empty line says nothing."""
        text = printable(line).rstrip()
        if not text:
            return []
        return [Reply(self._last, text) if self._last else Post(text)]

    def finish(self, exit_code: int, signal: int) -> list[Action]:  # noqa: ARG002
        """Nothing: each line stands for itself."""
        return []

    def render(self, message: Incoming) -> bytes:
        """`nick: text`, or `#project nick: text`, with every control character taken out."""
        nick = one_line(message.sender.nick or message.sender.uid, 64)
        where = ""
        if message.to.startswith("#"):
            where = f"{one_line(message.to, 65)} "
        else:
            self._last = message.id
        text = CONTINUATION.join(printable(message.text).split("\n"))
        return f"{where}{nick}: {text}\n".encode("utf-8", errors="replace")

    def render_control(self, record: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """Nothing: such a program is handed messages only."""
        return b""
