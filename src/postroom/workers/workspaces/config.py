"""Settings of git, read as data: git lists what is in a file, and takes none of it for itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.workers.workspaces import plain
from postroom.workers.workspaces.program import GitFailed, run

LARGEST = 1 << 20
"""Bytes of a file of settings."""
_LIST = ("--no-includes", "-z", "--list")
_ON = frozenset({"true", "yes", "on", "1", None})


@dataclass(frozen=True, slots=True)
class Settings:
    """Names, in small letters but for their middle part, and values; None for a name without one."""

    pairs: tuple[tuple[str, str | None], ...] = ()

    def get(self, name: str) -> str:
        """The last value of a setting, "" if there is none."""
        return next((value or "" for found, value in reversed(self.pairs) if found == name), "")

    def on(self, name: str) -> bool:
        """Whether a setting is there and says yes."""
        for found, value in reversed(self.pairs):
            if found == name:
                return (value.lower() if value else value) in _ON
        return False

    def ending(self, first: str, last: str) -> list[str]:
        """The values of all settings `first.…last`."""
        named = (pair for pair in self.pairs if pair[0].startswith(first))
        return [value or "" for name, value in named if name.endswith(last)]

    def __add__(self, other: Settings) -> Settings:
        return Settings(self.pairs + other.pairs)


async def of_file(path: Path) -> Settings:
    """The settings in a file, without what it includes.

    Raises:
        InvalidInput: it is no plain file.
        GitFailed: git cannot read it.
    """
    try:
        place = plain.opened(path, LARGEST)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    try:
        return parsed(await run(("config", "--file", "-", *_LIST), stdin=place))
    finally:
        os.close(place)


async def of_person() -> Settings:
    """The person's own settings and, before them, the machine's; without what they include."""
    found = Settings()
    for scope in ("--system", "--global"):
        try:
            found += parsed(await run(("config", scope, *_LIST), persons=True))
        except GitFailed:
            continue  # there is no such file
    return found


def parsed(listed: bytes) -> Settings:
    """The settings that `git config -z --list` prints."""
    entries = listed.decode(errors="surrogateescape").split("\0")
    split = (entry.partition("\n") for entry in entries if entry)
    return Settings(tuple((name, value if mark else None) for name, mark, value in split))
