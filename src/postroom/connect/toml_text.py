"""A table of our own in a TOML file of a coding agent, changed as text: what others wrote keeps its bytes.

The parser judges each change: the new text says what the old one says, with our table or without it, or it is refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from postroom.errors import InvalidInput

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Statement:
    """Lines `begin` to before `end`: a header, or a key with its value; `path` is what it is about."""

    begin: int
    end: int
    path: Path
    header: bool


def parsed(text: str) -> dict[str, Any]:
    """The content of such a file.

    Raises:
        InvalidInput: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"it is not TOML: {error}") from error


def table(said: Any, path: Path) -> Any:
    """What the file says at `path`, None for nothing."""
    for key in path:
        said = said.get(key) if isinstance(said, Mapping) else None
    return said


def with_table(text: str, path: Path, values: Mapping[str, Any], comment: str) -> str:
    """`text` with a table more at its end.

    Args:
        path: plain words, which need no quotes.
        comment: on the line of the header: as a line of its own an editor that sorts tables would part it from them.

    Raises:
        InvalidInput: the text is not TOML, or is written so that no table can be added.
    """
    said = parsed(text)
    end = "\r\n" if "\r\n" in text else "\n"
    rows = [f"[{'.'.join(path)}] # {comment}"]
    rows += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    gap = "" if not text else end if text.endswith("\n") else end * 2
    new = text + gap + "".join(row + end for row in rows)
    wanted = said
    for key in path[:-1]:
        wanted = wanted.setdefault(key, {})
        if not isinstance(wanted, dict):
            raise InvalidInput(f"its {key!r} is no table")
    wanted[path[-1]] = dict(values)
    _check(new, said, path)
    return new


def without_table(
    text: str, path: Path, values: Mapping[str, Any], before: str | None
) -> tuple[str, list[str]]:
    """`text` without the table and all that is below it, and the names of what others have put there.

    Args:
        values: as they were written.
        before: the text before the table came in, None for no file.

    Raises:
        InvalidInput: the text is not TOML, or is written so that nothing can be cut safely.
    """
    said = parsed(text)
    lines = _lines(text)
    mine = [one for one in _statements(lines) if one.path[: len(path)] == path]
    gone: set[int] = set()
    for one in mine:
        gone.update(range(one.begin, one.end))
    last = bool(gone) and max(gone) == len(lines) - 1
    first = min(gone, default=0)
    if first and not lines[first - 1].strip():
        gone.add(first - 1)  # the empty line that stands before the table
    new = "".join(line for number, line in enumerate(lines) if number not in gone)
    if last and before and not before.endswith("\n"):
        new = new.removesuffix("\n").removesuffix("\r")
    _check(new, _pruned(said, path), path)
    below = {one.path for one in mine if not one.header} - {(*path, key) for key in values}
    return new, sorted(map(".".join, below))


def _lines(text: str) -> list[str]:
    """The lines with their ends; the only end of a line in TOML has a line feed."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _statements(lines: Sequence[str]) -> list[_Statement]:
    """Every header and every value. The parser says where one ends: a header inside a text is none."""
    found: list[_Statement] = []
    at, prefix = 0, ()
    while at < len(lines):
        begin = at
        at += 1
        if not (start := lines[begin].strip()) or start.startswith("#"):
            continue
        while (said := _said("".join(lines[begin:at]))) is None and at < len(lines):
            at += 1
        path = _path(said or {})
        header = start.startswith("[")
        prefix = path if header else prefix
        found.append(_Statement(begin, at, path if header else prefix + path, header))
    return found


def _path(said: Mapping[str, Any]) -> Path:
    """What a statement is about: its keys as far as there is one at each level."""
    path: list[str] = []
    here: Any = said
    while isinstance(here, dict) and len(here) == 1:
        key, here = next(iter(here.items()))
        path.append(key)
    return tuple(path)


def _said(text: str) -> dict[str, Any] | None:
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        return tomllib.loads(text)
    return None


def _pruned(said: dict[str, Any], path: Path) -> dict[str, Any]:
    """`said` without what is at `path`."""
    if len(path) == 1:
        return {key: value for key, value in said.items() if key != path[0]}
    inner = said.get(path[0])
    if not isinstance(inner, dict):
        return said
    return {**said, path[0]: _pruned(inner, path[1:])}


def _check(new: str, wanted: dict[str, Any], path: Path) -> None:
    """Refuse a text that does not say what is wanted; tables above ours may be gone when they are empty."""
    said = _said(new)
    if said is None or _plain(said, path) != _plain(wanted, path):
        raise InvalidInput(f"it says {'.'.join(path)} in a way that cannot be changed here")


def _plain(said: dict[str, Any], path: Path) -> str:
    """For comparison: not-a-number is itself, and a table above ours that is empty is none."""
    for length in range(len(path) - 1, 0, -1):
        if table(said, path[:length]) == {}:
            said = _pruned(said, path[:length])
    return json.dumps(said, sort_keys=True, default=repr)
