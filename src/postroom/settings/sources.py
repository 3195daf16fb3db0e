"""Sources of settings: flag, else environment, else the state folder's file, else the user's, else the default.

One setting in a file is changed in its text, and everything else is left as a person wrote it. The new text is parsed
and compared with the intended values, so an unusual way of writing is refused and never broken.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from platformdirs import user_config_path

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.settings import SETTINGS_FILE, Settings
from postroom.settings.option import Option
from postroom.settings.options import BY_FIELD, OPTIONS, option

MAX_BYTES = 64 * 1024

FLAG, ENVIRONMENT, STATE, USER, DEFAULT = "flag", "environment", "state folder", "user", "default"

_HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]\s*(#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=")


@dataclass(frozen=True, slots=True)
class ChosenValue:
    """The value of one setting.

    Attributes:
        value: as `Settings` has it.
        source: FLAG, ENVIRONMENT, STATE, USER or DEFAULT.
    """

    option: Option
    value: Any
    source: str

    @property
    def plain(self) -> Any:
        """The value as in JSON; a secret is hidden, and an unset value is None."""
        if self.value in {None, "", ()}:
            return None
        if self.option.secret:
            return "(secret)"
        if isinstance(self.value, tuple):
            return list(self.value)
        return str(self.value) if isinstance(self.value, Path) else self.value

    @property
    def text(self) -> str:
        """The value for a person, "" for none."""
        match self.plain:
            case None:
                return self.option.usual
            case list() as parts:
                return ",".join(parts)
            case float() as number:
                return f"{number:.15g}"
            case plain:
                return str(plain)


def load(state: Path, flags: Mapping[str, str] = MappingProxyType({}), **others: Any) -> Settings:
    """The settings of the post room on `state`.

    Args:
        flags: field -> value of a flag.
        others: fields that are not settings, but of this run alone.

    Raises:
        InvalidInput: a value is invalid, or a file has an unknown setting.
        EnvironmentFault: a file cannot be read.
    """
    values = {found.option.field: found.value for found in find(state, flags)}
    return Settings(state=state, **values, **others)


def find(state: Path, flags: Mapping[str, str] = MappingProxyType({})) -> list[ChosenValue]:
    """Every setting with the source of its value; raises as `load`."""
    chosen: dict[str, ChosenValue] = {}
    user = user_file()
    if user is not None:
        chosen |= _from_file(user, USER)
    chosen |= _from_file(state / SETTINGS_FILE, STATE)
    for one in OPTIONS:
        if text := os.environ.get(one.variable, ""):
            chosen[one.key] = ChosenValue(one, one.from_text(text, one.variable), ENVIRONMENT)
    for name, text in flags.items():
        one = BY_FIELD[name]
        chosen[one.key] = ChosenValue(one, one.from_text(text, one.flag), FLAG)
    return [chosen.get(found.option.key, found) for found in defaults()]


def of_person(key: str, state: Path | None) -> Any:
    """The value of a setting that a command reads for the person who types it.

    Args:
        state: folder of the post room, None where that is on another machine.

    Raises:
        InvalidInput, EnvironmentFault: as `load`, for the files that are read.
    """
    one = option(key)
    if text := os.environ.get(one.variable, ""):
        return one.from_text(text, one.variable)
    files = [user_file(), state / SETTINGS_FILE if state is not None else None]
    chosen = getattr(Settings(state=Path()), one.field)
    for file in files:
        if file is not None and (found := _from_file(file, USER).get(key)):
            chosen = found.value
    return chosen


def defaults() -> list[ChosenValue]:
    """Every setting with its default."""
    default = Settings(state=Path())
    return [ChosenValue(one, getattr(default, one.field), DEFAULT) for one in OPTIONS]


def user_file() -> Path | None:
    """The user's settings file, for all post rooms; None where the user has no home."""
    try:
        return user_config_path("postroom") / SETTINGS_FILE
    except RuntimeError:
        return None


def _from_file(path: Path, source: str) -> dict[str, ChosenValue]:
    found = {}
    for key, value in entries(read(path), path).items():
        one = _option(key, path)
        found[key] = ChosenValue(one, one.from_toml(value, f"{key} in {path}", path.parent), source)
    return found


def _option(key: str, path: Path) -> Option:
    try:
        return option(key)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.message}", remedy=error.remedy) from None


def read(path: Path) -> str:
    """The text of a settings file, "" if there is none.

    Raises:
        InvalidInput: it is too large, or not text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
            mode = os.fstat(file.fileno()).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"{path} has more than {MAX_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and _has_secret(entries(text, path)):
        raise EnvironmentFault(
            f"{path} holds a secret and other users can read it", remedy=f"chmod 600 {path}"
        )
    return text


def _has_secret(said: Mapping[str, Any]) -> bool:
    return any(one.secret and one.key in said for one in OPTIONS)


def entries(text: str, path: Path) -> dict[str, Any]:
    """The content of a settings file: `table.name` -> value.

    Raises:
        InvalidInput: it is not TOML; the error names the line.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error
    return flat(document)


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
