"""Reads a worker template and the files that it names, before anything is sent.

What the keys mean is the control plane's business; here is only what must be read on this side.
"""

from __future__ import annotations

import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import InvalidInput, InvalidTemplate

MAX_TEMPLATE = 256 * 1024
MAX_FILES = 8 * 1024 * 1024
"""Bytes of all files of a template together; they travel in one request."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A template's text and the content of its files by the names that it uses."""

    text: str
    files: dict[str, bytes]


def read(path: Path) -> Bundle:
    """The template at `path` with its files.

    Raises:
        InvalidTemplate: it or one of its files cannot be read, is not TOML, or lies outside its folder.
    """
    text = _read_text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidTemplate(f"{path}: {error}") from error  # its text ends with line and column
    return Bundle(text, _read_files(path, document))


def _read_text(path: Path) -> str:
    content = _read_bytes(path, path.name, MAX_TEMPLATE)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidTemplate(f"{path}: not UTF-8 (at line {line})") from error


def _read_files(path: Path, document: dict[str, object]) -> dict[str, bytes]:
    table = document.get("workstation", {})
    names = table.get("files", []) if isinstance(table, dict) else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidTemplate(f"{path}: workstation.files must be a list of file names")
    files: dict[str, bytes] = {}
    for name in names:
        left = MAX_FILES - sum(map(len, files.values()))
        files[name] = _read_bytes(_inside(path, name), name, left)
    return files


def _inside(path: Path, name: str) -> Path:
    """The file `name` next to the template; links are followed, but not out of its folder."""
    folder = path.parent.resolve()
    try:
        wanted = (folder / name).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle; a NUL in the name
        raise InvalidTemplate(f"{path}: the file {name!r} cannot be found: {error}") from error
    if Path(name).is_absolute() or not wanted.is_relative_to(folder):
        raise InvalidTemplate(f"{path}: the file {name!r} lies outside the template's folder")
    return wanted


def _read_bytes(path: Path, name: str, limit: int) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidTemplate(f"{name} is not a file")
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise InvalidTemplate(f"cannot read {path}: {error.strerror}") from error
    if len(content) > limit:
        raise InvalidTemplate(f"{name} is too large: {limit} bytes are left for it")
    return content


def overrides(settings: tuple[str, ...]) -> dict[str, str]:
    """The values of `--set KEY=VALUE` options; the last one of a key counts.

    A value that begins with `@` is a path and becomes absolute, and so does one that begins with `./` or
    `../`, or is `.` or `..`; every other value is text and stays as it is (`@@` begins a text with `@`).

    Raises:
        InvalidInput: one has no key or no `=`.
    """
    values: dict[str, str] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise InvalidInput(f"--set {setting!r} is not KEY=VALUE")
        values[key.strip()] = _value(value)
    return values


def _value(value: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    if value.startswith("@"):
        return str(Path(value[1:]).resolve())
    if value in (".", "..") or value.startswith(("./", "../")):
        return str(Path(value).resolve())
    return value
