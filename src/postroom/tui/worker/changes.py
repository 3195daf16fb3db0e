"""A diff as files with lines that have places; what a person has seen and says about them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from postroom_a2a.text import printable

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a diff.

    Attributes:
        text: as git prints it, with the sign before it.
        number: where it stands, or stood before, in the file as it is now; 0 for what is no line of it.
    """

    text: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """What was changed in a file; `name` is its path in the repository."""

    name: str
    lines: tuple[Line, ...]
    added: int
    removed: int

    @property
    def now(self) -> list[str]:
        """The lines that the diff has of the file as it is now."""
        return [each.text[1:] for each in self.lines if each.number and each.text[:1] != "-"]

    def digest(self, whose: str) -> str:
        """Names this very change of the worker `whose`."""
        text = "\n".join((whose, self.name, *(line.text for line in self.lines)))
        return sha256(text.encode(errors="backslashreplace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Comment:
    """What a person says about a line, or with the number 0 about a file.

    Attributes:
        quoted: the line as the diff had it, "" for a file.
    """

    file: str
    number: int
    quoted: str
    text: str

    @property
    def place(self) -> str:
        """`FILE:LINE`, or `FILE`."""
        return f"{self.file}:{self.number}" if self.number else self.file

    def about(self, file: File, line: Line) -> bool:
        """Whether it is about that line; `number` 0 stands for the first one."""
        return self.file == file.name and (
            (self.number, self.quoted) == (line.number, line.text)
            if self.number
            else line is file.lines[0]
        )


def message(comments: Iterable[Comment]) -> str:
    """All of them as one text for the agent."""
    return "\n\n".join(["Comments on your changes:", *map(_said, comments)])


def _said(comment: Comment) -> str:
    quoted = [f"    {comment.quoted}"] if comment.quoted else []
    return "\n".join([comment.place, *quoted, comment.text])


def files_of(text: str) -> list[File]:
    """The files of what `git diff` prints."""
    found: list[list[str]] = []
    for line in printable(text).split("\n"):
        if line.startswith("diff --git ") or not found:
            found.append([])
        found[-1].append(line)
    if found and not found[-1][-1]:
        found[-1].pop()
    return [_file(lines) for lines in found if any(lines)]


def _file(lines: Sequence[str]) -> File:
    placed = tuple(_placed(lines))
    texts = [line.text[:1] for line in placed if line.number]
    return File(_name(lines), placed, texts.count("+"), texts.count("-"))


def _placed(lines: Sequence[str]) -> Iterator[Line]:
    number, inside = 0, False
    for line in lines:
        if head := _HUNK.match(line):
            number, inside = int(head[1]), True
            yield Line(line)
        elif inside and line[:1] in {" ", "+", "-"}:
            yield Line(line, max(1, number))
            number += line[0] != "-"
        else:
            yield Line(line)


def _name(lines: Sequence[str]) -> str:
    heads: dict[str, str] = {}
    for line in lines:
        if line.startswith("@@"):
            break
        sign, _, name = line.partition(" ")
        if sign in ("---", "+++"):
            heads[sign] = name.removesuffix("\t")
    named = [heads.get("+++", ""), heads.get("---", "")]
    given = next((name for name in named if name not in ("", "/dev/null")), "")
    if given:
        return _unquoted(given)[2:]
    quoted = lines[0].rpartition(' "b/')[2] if lines[0].endswith('"') else ""
    return _unquoted(f'"{quoted}') if quoted else lines[0].rpartition(" b/")[2]


def _unquoted(name: str) -> str:
    """A name without the quotes and escapes in which git prints a special one."""
    if not (name.startswith('"') and name.endswith('"')):
        return name
    inner = name[1:-1].encode(errors="backslashreplace")
    return _ESCAPED.sub(lambda found: _byte(found[1]), inner).decode(errors="replace")


def _byte(escape: bytes) -> bytes:
    if len(escape) == 3:
        return bytes([int(escape, 8) & 0xFF])
    return _ESCAPES.get(escape, escape)
