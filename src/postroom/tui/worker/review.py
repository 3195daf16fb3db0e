"""What a person has seen of workers' changes, and says about them: kept over restarts, in a file of this user."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from secrets import token_hex
from typing import Any

from postroom.errors import EnvironmentFault
from postroom.identity.privatefile import replace as write_file
from postroom.tui.typing.history import person_file
from postroom.tui.worker.changes import Comment

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
