"""Reads a worker template and its files, before anything is sent.

The control plane checks it again. The check here keeps a mistake from starting a post room.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import InvalidInput, InvalidTemplate, NotFound
from postroom.protocol.limits import MAX_FILES_BYTES, MAX_TEMPLATE_BYTES
from postroom.protocol.similar import did_you_mean
from postroom.protocol.template import PARAMETER, Template, parse_template

WALLS = ("", "auto", "bubblewrap", "netns", "landlock", "none")
"""Sandboxes whose programs are installed on this machine."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A template's text and the content of its files by their names."""

    text: str
    files: dict[str, bytes]


def located(word: str, note: Callable[[str], object] = lambda _: None) -> Path:
    """The file of a template: one that Postroom brings for its name, else the file that the word names.

    A word with a `/` or the ending `.toml` is always a file. `note` is told of a file here that has the name of one
    that Postroom brings.

    Raises:
        NotFound: a word that is neither.
    """
    path = Path(word)
    if "/" in word or word.endswith(".toml"):
        return path
    from postroom.templates.shipped import names, shipped

    if word in names():
        if path.is_file():
            note(
                f"{word}: the template that Postroom brings, not the file here (for that: ./{word})"
            )
        return shipped(word).path
    if not path.exists():
        raise NotFound(
            f"there is no template {word!r}, and no file of that name",
            remedy=did_you_mean(word, names()) or "postroom templates lists them",
        )
    return path


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
    content = _read_bytes(path, path.name, MAX_TEMPLATE_BYTES)
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
        left = MAX_FILES_BYTES - sum(map(len, files.values()))
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


def check(bundle: Bundle, values: Mapping[str, str], sandbox: str) -> Template:
    """The template; refuse one that could not be started, as far as that is known before there is a post room.

    Raises:
        InvalidTemplate: with a remedy.
    """
    template = parse_template(bundle.text, values)
    wall = sandbox or template.sandbox
    if wall in WALLS:
        from postroom.sandbox.arguments import SHOWN
        from postroom.sandbox.template_check import check_program

        check_program(template, SHOWN, all_shown=wall == "none")
    return template


def overrides(settings: tuple[str, ...], text: str) -> dict[str, str]:
    """The values of `--set KEY=VALUE` options for the template `text`; the last value of a key counts.

    A value becomes an absolute path if it begins with `@`, `./` or `../`, is `.` or `..`, or stands for a folder to
    read. Every other value is text and stays as it is (`@@` begins a text with `@`).

    Raises:
        InvalidInput: an option has no key or no `=`.
    """
    values: dict[str, str] = {}
    folders = _folders(text)
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise InvalidInput(f"--set {setting!r} is not KEY=VALUE")
        values[key.strip()] = _value(value, folder=key.strip() in folders)
    return values


def _folders(text: str) -> set[str]:
    """The parameters at the beginning of entries of `compute.read_only`."""
    named = tomllib.loads(text).get("compute", {})
    listed = named.get("read_only", ()) if isinstance(named, dict) else ()
    words = [word for word in listed if isinstance(word, str)] if isinstance(listed, list) else []
    return {found[1] for word in words if (found := PARAMETER.match(word)) is not None}


def _value(value: str, *, folder: bool) -> str:
    if value.startswith("@@"):
        return value[1:]
    if value.startswith("@"):
        return str(Path(value[1:]).resolve())
    if value in (".", "..") or value.startswith(("./", "../")):
        return str(Path(value).resolve())
    if folder and value and Path(value).is_dir():
        return str(Path(value).resolve())
    return value
