"""The parts of messages and artifacts in lines of text. Agents wrote all of it, so it is made harmless here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from postroom.lines.words import block, size_of
from postroom.protocol.blobs import PREFIX, SHA256
from postroom.protocol.parts import (
    FILE,
    TEXT,
    kind_of,
    media_type_of,
    name_in,
    size_in,
)
from postroom_a2a.text import one_line

Part = Mapping[str, Any]
Holder = Mapping[str, Any]
"""What has `parts` and perhaps `files` in the API's JSON: a message, a post, a dead letter, an artifact, a task."""


def part_lines(holder: Holder) -> list[str]:
    """A line for each part that is no text, such as `file report.pdf, 12.3 kB, application/pdf`."""
    return [part_line(part, size) for part, size in sized(holder) if kind_of(part) != TEXT]


def part_line(part: Part, size: int | None) -> str:
    """One part in a line; `size` in bytes, None for an unknown one."""
    kind, name = kind_of(part), name_in(part)
    what = f"{kind} {name}" if name else kind
    if not kind:
        keys = one_line(", ".join(str(key) for key in part), 60)
        what = f"a part of a kind that this version does not know ({keys})"
    words = [what] if size is None else [what, size_of(size)]
    line = ", ".join([*words, one_line(media_type_of(part), 60)])
    url = part.get("url")
    if kind != FILE or not isinstance(url, str) or is_blob(url):
        return line
    return f"{line}, at {one_line(url, 200)}"


def fetch_lines(holder: Holder) -> list[str]:
    """For each blob among the parts the command that fetches it."""
    return [
        f"postroom blob get {part['url']} -o {shlex.quote(name_in(part) or 'content')}"
        for part, _ in sized(holder)
        if kind_of(part) == FILE and is_blob(part.get("url"))
    ]


def gist(holder: Holder) -> str:
    """What is said, in a line: the subject, the text, and what else there is."""
    subject = holder.get("subject") or ""
    said = [one_line(holder["text"]), *(f"[{line}]" for line in part_lines(holder))]
    return ": ".join(each for each in (one_line(subject), " ".join(filter(None, said))) if each)


def body_lines(holder: Holder) -> list[str]:
    """All that is said, below a line that says by whom. No text can be taken for another line."""
    subject = holder.get("subject") or ""
    lines = [f"    subject: {one_line(subject)}"] if subject else []
    others = part_lines(holder)
    if holder["text"] or not others:
        lines.append(block("    | ", holder["text"]))
    return [*lines, *(f"    {line}" for line in others)]


def sized(holder: Holder) -> Iterator[tuple[Part, int | None]]:
    """The parts, each with its size in bytes where that is known; none from a post room that is older than parts."""
    sizes = {file["url"]: file["size"] for file in holder.get("files", ())}
    for part in holder.get("parts", ()):
        size = size_in(part)
        yield part, sizes.get(part.get("url")) if size is None else size


def is_blob(url: object) -> bool:
    """Whether a URL is that of a blob."""
    return (
        isinstance(url, str)
        and SHA256.fullmatch(url.removeprefix(PREFIX)) is not None
        and url.startswith(PREFIX)
    )
