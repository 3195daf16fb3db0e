"""A diff as files with lines that have places; what a person has seen and says about them, kept over restarts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

from postroom.errors import EnvironmentFault
from postroom.identity.privatefile import replace as write_file
from postroom.tui.typing.history import person_file
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


# ── what a person has seen and says ──

FILE = "review.json"
MOST = 5000
"""Marks that are kept: the newest ones."""

MOST_COMMENTS = 200
"""Comments on the changes of one worker."""


def review_file() -> Path | None:
    """Where it is kept, None without a home folder."""
    file = person_file()
    return None if file is None else file.with_name(FILE)


class Review:
    """Marks of changes that were seen, and comments that are not sent yet, by the uid of the worker.

    Args:
        file: where they are kept; None for this run alone. Each change reads it anew, since another screen may have
            written it.

    Attributes:
        run: names what is not sent yet: another one once something was sent.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.run = token_hex(8)
        self._file = file
        self._seen: list[str] = []
        self._comments: dict[str, list[Comment]] = {}
        self._read()

    def seen(self, digest: str) -> bool:
        """Whether that change is marked."""
        return digest in self._seen

    def mark(self, digest: str, *, seen: bool) -> None:
        """Mark a change as seen, or not.

        Raises:
            EnvironmentFault: it is kept for this run alone.
        """
        self._read()
        others = [each for each in self._seen if each != digest]
        self._seen = [*others, *([digest] if seen else [])][-MOST:]
        self._write()

    def comments(self, whose: str) -> Sequence[Comment]:
        """What is said about the changes of a worker, in the order of the places."""
        return sorted(self._comments.get(whose, ()), key=lambda each: (each.file, each.number))

    def say(self, whose: str, comment: Comment) -> None:
        """Keep a comment in place of the one about the same line; one without text takes that away.

        Raises:
            EnvironmentFault: it is kept for this run alone.
        """
        self._read()
        mine = [each for each in self._comments.get(whose, ()) if not _same(each, comment)]
        self._comments[whose] = [*mine, *([comment] if comment.text else [])][-MOST_COMMENTS:]
        self._write()

    def sent(self, whose: str, comments: Sequence[Comment]) -> None:
        """Forget what the agent has been told.

        Raises:
            EnvironmentFault: it is forgotten for this run alone.
        """
        self._read()
        left = [each for each in self._comments.pop(whose, ()) if each not in comments]
        if left:
            self._comments[whose] = left
        self.run = token_hex(8)
        self._write()

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            found = json.loads(self._file.read_text(encoding="utf-8", errors="replace"))
            seen, comments = _seen_of(found), _comments_of(found)
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return  # not there yet, or of a later version
        self._seen, self._comments = seen, comments

    def _write(self) -> None:
        if self._file is None:
            return
        comments = {
            whose: [astuple(each) for each in said]
            for whose, said in self._comments.items()
            if said
        }
        kept = {"seen": self._seen, "comments": comments}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(kept).encode(), sync=False)
        except OSError as error:
            file, self._file = self._file, None
            raise EnvironmentFault(
                f"marks and comments are not kept: cannot write {file}: {error.strerror}"
            ) from error


def _same(one: Comment, other: Comment) -> bool:
    return (one.file, one.number, one.quoted) == (other.file, other.number, other.quoted)


def _seen_of(found: Any) -> list[str]:
    return [each for each in found["seen"] if isinstance(each, str)]


def _comments_of(found: Any) -> dict[str, list[Comment]]:
    return {
        str(whose): [
            Comment(str(file), int(number), str(quoted), str(text))
            for file, number, quoted, text in said
        ]
        for whose, said in found["comments"].items()
    }
