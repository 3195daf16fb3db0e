"""Kinds of fields in an agent's actions. Each reads one value and refuses values of another kind. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from postroom.errors import InvalidInput
from postroom.protocol.blobs import check_sha256, sha256_of
from postroom.protocol.content import part_fault
from postroom.protocol.limits import MAX_PARTS, MAX_REF
from postroom.protocol.tasks import TASK_ID
from postroom_a2a.text import one_line

MAX_SECONDS = 10**9


class Field:
    """A text, and the common part of all kinds of fields.

    Args:
        argument: name of the command's argument, "" where it is not one.
        option: of the command, such as `--key`, "" for none.
        metavar: the word for the value in the option's help, "" for the usual word.
        limit: of its characters, 0 for no limit here.
        name: in a record, where it differs from the attribute's name.
        missing: the value of a field that is left out; None for the default of the attribute.
        formerly: a name that it had; still read.
    """

    has_to_be = "a text"
    takes_null = False
    """Whether null is a value to read; if not, null counts as a field that is left out."""

    parse: ClassVar[Callable[[str], Any]] = str
    """Reads the text in a URL's query; raises ValueError for an invalid text."""

    def __init__(
        self,
        help: str = "",  # noqa: A002 (argparse's word)
        *,
        argument: str = "",
        option: str = "",
        metavar: str = "",
        limit: int = 0,
        name: str = "",
        missing: Any = None,
        formerly: str = "",
    ) -> None:
        self.help = help
        self.argument = argument
        self.option = option
        self.metavar = metavar
        self.limit = limit
        self.name = name
        self.missing = missing
        self.formerly = formerly

    def read(self, name: str, value: Any) -> Any:
        """The value of the attribute.

        Raises:
            InvalidInput: `value` is not of this kind; the text names the field `name`.
        """
        return self._read(name, value)

    def _read(self, name: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise self.wrong(name)
        if self.limit and len(value) > self.limit:
            raise InvalidInput(f"{name!r} has at most {self.limit} characters")
        return value

    def wrong(self, name: str) -> InvalidInput:
        """The refusal of a value of another kind."""
        return InvalidInput(f"{name!r} has to be {self.has_to_be}")


class Text(Field):
    """A text of any length."""


class Body(Text):
    """A text that the command reads from standard input if nothing is given."""


class Project(Field):
    """A project, with or without its `#`."""

    def _read(self, name: str, value: Any) -> str:
        return super()._read(name, value).removeprefix("#")


class TaskId(Field):
    """The full id of a task."""

    def _read(self, name: str, value: Any) -> str:
        text = super()._read(name, value)
        if TASK_ID.fullmatch(text) is None:
            raise InvalidInput(f"{name!r} has to be the full id of a task")
        return text


class BlobUrl(Field):
    """The URL of a blob."""

    def _read(self, name: str, value: Any) -> str:
        url = super()._read(name, value)
        sha256_of(url)
        return url


class Sha256(Field):
    """The hash of a blob."""

    def _read(self, name: str, value: Any) -> str:
        return check_sha256(super()._read(name, value))


class Choice(Field):
    """One of some words."""

    def __init__(self, help: str = "", *among: str, option: str = "") -> None:  # noqa: A002
        super().__init__(help, option=option)
        self.among = among
        self.has_to_be = f"one of {', '.join(among)}"

    def _read(self, name: str, value: Any) -> str:
        if super()._read(name, value) not in self.among:
            raise self.wrong(name)
        return value


class Flag(Field):
    """True or false. The command's option says the opposite of the default."""

    has_to_be = "true or false"
    takes_null = True
    parse = frozenset({"1", "true"}).__contains__

    def _read(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.wrong(name)
        return value


class Seconds(Field):
    """A number of seconds, 0 or more.

    Args:
        most: a larger number counts as this one; 0 for no such limit.
    """

    has_to_be = "a number of seconds"
    parse = float

    def __init__(self, help: str = "", *, option: str = "", most: float = 0) -> None:  # noqa: A002
        super().__init__(help, option=option)
        self.most = most

    def _read(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise self.wrong(name)
        if self.most:
            value = min(value, self.most)
        if value > MAX_SECONDS:
            raise self.wrong(name)
        return float(value)


class Bytes(Field):
    """A number of bytes."""

    has_to_be = "a number of bytes"
    parse = int

    def _read(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
            raise self.wrong(name)
        return value


class FileMode(Field):
    """Permission bits of a file, in octal."""

    has_to_be = "permission bits in octal, such as 644"

    def _read(self, name: str, value: Any) -> int:
        try:
            mode = int(super()._read(name, value), 8)
        except ValueError as error:
            raise self.wrong(name) from error
        if not 0 <= mode <= 0o777:
            raise self.wrong(name)
        return mode


class Path(Field):
    """A path in the workspace. Only the workspace knows whether it exists."""

    has_to_be = "a path"

    def _read(self, name: str, value: Any) -> str:
        if not _is_plain(value):
            raise self.wrong(name)
        return value


class Arguments(Field):
    """A program and its arguments."""

    has_to_be = "a list of words"

    def _read(self, name: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(map(_is_plain, value)) or not any(value[:1]):
            raise self.wrong(name)
        return tuple(value)


class Environment(Field):
    """Variables of a program."""

    has_to_be = "a table of texts"

    def _read(self, name: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(map(_is_plain, [*value, *value.values()])):
            raise self.wrong(name)
        if any("=" in variable or not variable for variable in value):
            raise InvalidInput(
                f"{name!r} has a variable with an empty name, or with '=' in its name"
            )
        return value


class Line(Field):
    """One line of text."""

    has_to_be = "one line without control characters"

    def _read(self, name: str, value: Any) -> str:
        text = super()._read(name, value)
        if text != one_line(text):
            raise self.wrong(name)
        return text


class Parts(Field):
    """The parts of an A2A Message or Artifact, as JSON."""

    has_to_be = "a list of A2A parts"

    def _read(self, name: str, value: Any) -> tuple[dict[str, Any], ...]:
        if not isinstance(value, list):
            raise self.wrong(name)
        if len(value) > MAX_PARTS:
            raise InvalidInput(f"{name!r} has at most {MAX_PARTS} parts")
        for number, part in enumerate(value, 1):
            if fault := part_fault(part):
                raise InvalidInput(f"part {number} of {name!r} {fault}")
        return tuple(value)


class Ref(Field):
    """Any JSON value; the line that answers repeats it."""

    def _read(self, name: str, value: Any) -> Any:
        if not _is_short(value):
            raise InvalidInput(f"a {name} has at most {MAX_REF} characters")
        return value


def kept_ref(record: Mapping[str, Any]) -> Any:
    """The reference in a refused record; None where there is none, or it is too long to be kept."""
    ref = record.get("ref")
    return ref if _is_short(ref) else None


def _is_short(ref: Any) -> bool:
    try:
        return len(json.dumps(ref)) <= MAX_REF
    except RecursionError:
        return False


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value
