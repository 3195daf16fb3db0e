"""One setting: its valid values, and how to read it from a text or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from postroom.errors import InvalidInput


class ValueKind(Enum):
    """The kind of a setting's value."""

    PORT = "port, 0 to 65535"
    COUNT = "number"
    BYTES = "number of bytes"
    SECONDS = "number of seconds"
    TEXT = "text"
    CHOICE = "choice"
    FILE = "path of a file"
    LIST = "list, with commas between its parts"


@dataclass(frozen=True, slots=True)
class Option:
    """One setting.

    Attributes:
        key: its name in a file, `table.name`.
        field: of `Settings`.
        flag: of `postroom up`, "" for none.
        secret: it is never printed, and never taken from a command line.
        check: raises InvalidInput for a text, or a part of a list, that is not valid.
        usual: the effective value where nothing is chosen and `Settings` has no value.
    """

    key: str
    field: str
    variable: str
    kind: ValueKind
    meaning: str
    flag: str = ""
    choices: tuple[str, ...] = ()
    least: float = 1
    secret: bool = False
    usual: str = ""
    check: Callable[[str], object] | None = None

    @property
    def table(self) -> str:
        """The table of a file that it is in."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """Its name in that table."""
        return self.key.partition(".")[2]

    @property
    def expected(self) -> str:
        """A description of valid values, for a person."""
        if self.kind is ValueKind.CHOICE:
            return f"one of: {', '.join(self.choices)}"
        if self.kind in {ValueKind.COUNT, ValueKind.BYTES, ValueKind.SECONDS}:
            return f"a {self.kind.value}, at least {self.least:g}"
        return f"a {self.kind.value}"

    def from_text(self, text: str, where: str) -> Any:
        """The value in the text of a flag, a variable or a person.

        Raises:
            InvalidInput: it is not valid; the error begins with `where`.
        """
        value: Any = text
        try:
            if self.kind is ValueKind.SECONDS:
                value = float(text)
            elif self.kind in {ValueKind.PORT, ValueKind.COUNT, ValueKind.BYTES}:
                value = int(text)
        except ValueError:
            raise self._refused(text, where) from None
        if self.kind is ValueKind.LIST:
            value = [part.strip() for part in text.split(",") if part.strip()]
        return self.from_toml(value, where, Path())

    def from_toml(self, value: Any, where: str, folder: Path) -> Any:
        """The value in a file in `folder`, to which its paths are relative.

        Raises:
            InvalidInput: it is not valid; the error begins with `where`.
        """
        good: bool
        match self.kind:
            case ValueKind.PORT:
                good = type(value) is int and 0 <= value <= 65535
            case ValueKind.COUNT | ValueKind.BYTES:
                good = type(value) is int and value >= self.least
            case ValueKind.SECONDS:
                good = type(value) in {int, float} and self.least <= value < float("inf")
            case ValueKind.CHOICE:
                good = value in self.choices
            case ValueKind.LIST:
                good = isinstance(value, list) and all(isinstance(part, str) for part in value)
            case ValueKind.TEXT | ValueKind.FILE:
                good = isinstance(value, str) and value.isprintable() and bool(value)
        if not good:
            raise self._refused(value, where)
        self._check(value, where)
        return self._made(value, folder)

    def _check(self, value: Any, where: str) -> None:
        if self.check is None:
            return
        for part in value if isinstance(value, list) else [value]:
            try:
                self.check(part)
            except InvalidInput as error:
                raise InvalidInput(f"{where}: {error.message}", remedy=error.remedy) from None

    def _made(self, value: Any, folder: Path) -> Any:
        match self.kind:
            case ValueKind.FILE:
                return folder / value
            case ValueKind.LIST:
                return tuple(value)
            case ValueKind.SECONDS:
                return float(value)
        return value

    def _refused(self, value: object, where: str) -> InvalidInput:
        said = "not what it has to be" if self.secret else repr(value)
        return InvalidInput(f"{where} is {said}", remedy=self.expected)
