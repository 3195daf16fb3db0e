"""What a tool call is about, in one line, for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.sidecar.adapters.loose import text_in
from postroom_a2a.text import one_line

MAX_TITLE = 200
"""Characters."""

_TELLING = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path", "path"),
    *("pattern", "url", "query", "description", "prompt"),
)
"""Fields of a tool's input, the most telling first."""


def title_of(tool: str, given: Mapping[str, Any], otherwise: str = "") -> str:
    """The most telling text of a tool's input; `otherwise`, or the tool's name, if it has none."""
    text = text_in(given, *_TELLING) or otherwise or tool
    return one_line(text[: 4 * MAX_TITLE], MAX_TITLE)
