"""The lines that a person has typed, kept over restarts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from postroom.errors import EnvironmentFault

MOST = 1000
"""Lines that are kept."""

LONGEST = 4096
"""Characters of a line that is kept: what was pasted is not typed again."""

FILE = "typed.jsonl"


def person_file() -> Path | None:
    """The file of this user, None without a home folder."""
    from platformdirs import user_config_path

    try:
        return user_config_path("postroom") / FILE
    except RuntimeError:
        return None


class History:
    """Lines, the oldest first, and the one that is looked at.

    A line that begins with a space is not kept, nor one that repeats the line before it.

    Args:
        file: where they are kept, each as JSON; None for this run alone. Only this user can read it.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lines = _read(file) if file is not None else []
        self._written = len(self._lines)
        self._at = len(self._lines)
        self._draft = ""

    @property
    def lines(self) -> Sequence[str]:
        """All of them."""
        return self._lines

    def add(self, line: str) -> None:
        """Keep a line that was sent; a file that cannot be written is done without.

        Raises:
            EnvironmentFault: it could not be written; it is kept for this run.
        """
        kept = line.strip() and not line[0].isspace() and len(line) <= LONGEST
        if kept and self._lines[-1:] != [line]:
            self._lines = [*self._lines, line][-MOST:]
            if self._file is not None:
                self._append(self._file, line)
        self.rewind()

    def rewind(self) -> None:
        """Look at none."""
        self._at, self._draft = len(self._lines), ""

    def older(self, current: str) -> str | None:
        """The line before; None at the first one. `current` comes back at the end of `newer`."""
        if self._at == len(self._lines):
            self._draft = current
        if self._at == 0:
            return None
        self._at -= 1
        return self._lines[self._at]

    def newer(self) -> str | None:
        """The line after, at last the draft; None behind it."""
        if self._at == len(self._lines):
            return None
        self._at += 1
        return self._draft if self._at == len(self._lines) else self._lines[self._at]

    def search(self, text: str, *, skip: int = 0) -> str | None:
        """The newest line that has `text`, whatever its case, after `skip` other ones; None for no such line."""
        if not text:
            return None
        found = dict.fromkeys(
            line for line in reversed(self._lines) if text.lower() in line.lower()
        )
        return next((line for number, line in enumerate(found) if number == skip), None)

    def _append(self, path: Path, line: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self._written += 1
            if self._written > 2 * MOST:
                self._written = _bound(path)
        except OSError as error:
            self._file = None
            raise EnvironmentFault(
                f"what you type is not kept: cannot write {path}: {error.strerror}"
            ) from error


def _bound(path: Path) -> int:
    """Write the newest lines alone, and say how many; another terminal may have written, too."""
    kept = path.read_text(encoding="utf-8", errors="replace").splitlines()[-MOST:]
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.writelines(f"{each}\n" for each in kept)
    new.replace(path)
    return len(kept)


def _read(file: Path) -> list[str]:
    """The newest lines of the file; what is no line of ours is left out."""
    try:
        written = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: list[str] = []
    for each in written[-MOST:]:
        try:
            line = json.loads(each)
        except ValueError:
            continue
        if isinstance(line, str):
            found.append(line)
    return found
