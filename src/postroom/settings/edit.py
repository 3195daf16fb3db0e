"""Changes one setting in the text of a settings file, and leaves everything else as a person wrote it.

The new text is parsed and compared with the intended values, so an unusual way of writing is refused and never
broken.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from postroom.errors import InvalidInput

_HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]\s*(#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=")


@dataclass(frozen=True, slots=True)
class _Statement:
    """Lines `begin` to before `end`: a header of the table `key`, or a value of `key` (`table.name`)."""

    begin: int
    end: int
    key: str
    header: bool


def changed(text: str, key: str, value: Any) -> str:
    """`text` with `key` (`table.name`) set to `value`; None removes it.

    Raises:
        InvalidInput: the text cannot be changed safely.
    """
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    found = [one for one in _statements(lines) if one.key == key and not one.header]
    if found:
        written = [] if value is None else [_line(lines, found[0], value)]
        lines[found[0].begin : found[0].end] = written
    elif value is not None:
        _add(lines, key, value)
    new = "\n".join(lines) + "\n" if lines else ""
    expected = {**flat(_said(text)), key: value}
    if value is None:
        del expected[key]
    if _said(new) is None or flat(_said(new)) != expected:
        raise InvalidInput(
            f"{key} is written in a way that cannot be changed here", remedy="edit the file by hand"
        )
    return new


def _statements(lines: list[str]) -> Iterator[_Statement]:
    """Every header and every value; a value may take several lines."""
    prefix, at = "", 0
    while at < len(lines):
        begin, line = at, lines[at]
        at += 1
        if header := _HEADER.fullmatch(line):
            prefix = f"{header[1]}."
            yield _Statement(begin, at, header[1], header=True)
        elif line.lstrip().startswith("["):
            prefix = "?."  # a header of another kind, whose values are not ours
        elif key := _KEY.match(line):
            while at < len(lines) and _said("\n".join(lines[begin:at])) is None:
                at += 1
            yield _Statement(begin, at, prefix + re.sub(r"\s", "", key[1]), header=False)


def _said(text: str) -> dict[str, Any] | None:
    """The parsed text, None if it is not TOML."""
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        return tomllib.loads(text)
    return None


def flat(said: dict[str, Any] | None) -> dict[str, Any]:
    """The same content as `table.name` -> value."""
    found: dict[str, Any] = {}
    for table, content in (said or {}).items():
        if isinstance(content, dict):
            found |= {f"{table}.{name}": value for name, value in content.items()}
        else:
            found[table] = content
    return found


def _line(lines: list[str], found: _Statement, value: Any) -> str:
    """The statement with another value, its comment kept."""
    old = "\n".join(lines[found.begin : found.end])
    last = lines[found.end - 1]
    comment = ""
    for number, sign in enumerate(last):
        if sign == "#" and _said(old[: len(old) - len(last) + number]) == _said(old):
            comment = f"  {last[number:]}"
            break
    return f"{lines[found.begin].partition('=')[0].rstrip()} = {_written(value)}{comment}"


def _add(lines: list[str], key: str, value: Any) -> None:
    table, _, name = key.partition(".")
    line = f"{name} = {_written(value)}"
    statements = list(_statements(lines))
    for number, one in enumerate(statements):
        if one.header and one.key == table:
            last = one
            for follows in statements[number + 1 :]:
                if follows.header or not follows.key.startswith(f"{table}."):
                    break
                last = follows
            lines.insert(last.end, line)
            return
    lines += [*([""] if lines and lines[-1] else []), f"[{table}]", line]


def _written(value: Any) -> str:
    """The value as TOML; for settings, JSON looks the same."""
    return json.dumps(value, ensure_ascii=False)
