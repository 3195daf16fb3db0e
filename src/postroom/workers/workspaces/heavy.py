"""Files of a worker's branch that a person may not expect in a repository: large ones, and new binary ones."""

from __future__ import annotations

import asyncio
import tempfile

from postroom.protocol.modes import BRINGS_BINARY, BRINGS_LARGE
from postroom.view.words import size_of
from postroom.workers.workspaces.branches import LARGEST_TREE
from postroom.workers.workspaces.git import Git
from postroom_a2a.text import one_line

MOST_NAMED = 10
LONGEST_NAME = 200
_CHANGED = ("diff", "--raw", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv")
_CHECK = "--batch-check=%(objecttype) %(objectsize) %(rest)"


def sized(name: str, size: int) -> str:
    """A file as it can be shown: `huge.bin (60.0 MB)`."""
    return f"{one_line(name, LONGEST_NAME)} ({size_of(size)})"


async def brings(git: Git, base: str, top: str, largest: int) -> tuple[str, ...]:
    """Sentences about the files that commits up to `top` bring over `base`, as it stands or in between.

    Args:
        base: "" for none.
        largest: bytes that a file may have without being named.
    """
    if top in ("", base):
        return ()
    words = ("--full-index", "--submodule=short", base or await git.empty_tree(), top)
    changed = await git.run(*_CHANGED, *words, stranger=True, most=LARGEST_TREE)
    since = (f"^{base}",) if base else ()
    with tempfile.TemporaryFile() as file:
        # All of it, not what differs: a file that one commit brings and the next takes away is fetched by everybody.
        words = ("rev-list", "--objects", top, *since)
        file.write(await git.run(*words, stranger=True, most=LARGEST_TREE))
        file.seek(0)
        words = ("cat-file", _CHECK)
        listed = await git.run(*words, stdin=file.fileno(), stranger=True, most=LARGEST_TREE)
    return await asyncio.to_thread(_said, changed, listed, largest)


def _said(changed: bytes, listed: bytes, largest: int) -> tuple[str, ...]:
    added, binary = _read(changed.decode(errors="surrogateescape"))
    blobs = _blobs(listed.decode(errors="surrogateescape"))
    over, seen = {name: size for name, size in blobs if size > largest}, binary | added
    large = [
        sized(name, size) + ("" if name in seen else ", in a commit before the last")
        for name, size in over.items()
    ]
    new = sorted(one_line(name, LONGEST_NAME) for name in (added & binary) - over.keys())
    return (
        *([BRINGS_LARGE + _listed(large)] if large else []),
        *([BRINGS_BINARY + _listed(new)] if new else []),
    )


def _read(changed: str) -> tuple[set[str], set[str]]:
    """The files that are new, and those that are binary."""
    added: set[str] = set()
    binary: set[str] = set()
    fields = iter(changed.split("\0"))
    for field in fields:
        if field.startswith(":"):
            name = next(fields, "")
            if field.endswith(" A"):
                added.add(name)
        elif field.startswith("-\t-\t"):
            binary.add(field.removeprefix("-\t-\t"))
    return added, binary


def _blobs(listed: str) -> list[tuple[str, int]]:
    """Names and sizes of blobs."""
    lines = (line.split(" ", 2) for line in listed.split("\n"))
    return [(words[2], int(words[1])) for words in lines if words[0] == "blob" and len(words) == 3]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
