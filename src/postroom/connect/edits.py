"""What `connect` puts into a file of a coding agent, and how it takes that out: a file of our own, hooks, a table.

Each works on bytes alone. For a file that only we have changed, taking out gives the bytes that were there before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from postroom.connect import json_text, toml_text
from postroom.errors import Conflict, InvalidInput


@dataclass(frozen=True, slots=True)
class Cut:
    """A file without what is ours.

    Attributes:
        content: None where the file goes.
        named: what went with it though others had put it there.
    """

    content: bytes | None
    named: tuple[str, ...] = ()


class Edit(Protocol):
    """What is ours in one file."""

    def put(self, content: bytes | None) -> bytes:
        """The file with it; it has nothing of ours yet. None is no file.

        Raises:
            InvalidInput: the file cannot be changed safely.
            Conflict: it has something of that name that is not ours.
        """
        ...

    def cut(self, content: bytes, before: bytes | None) -> Cut:
        """The file without it.

        Args:
            before: the file before ours came in, None for none.

        Raises:
            InvalidInput: the file cannot be changed safely.
            Conflict: others have changed what is ours.
        """
        ...

    def there(self, content: bytes) -> bool:
        """Whether the file has it, just as it is put now."""
        ...

    def marked(self, content: bytes) -> bool:
        """Whether the file has something that a Postroom has put there, of this version or another."""
        ...


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that is ours as a whole."""

    content: bytes

    def put(self, content: bytes | None) -> bytes:
        """See `Edit`."""
        if content not in {None, self.content}:
            raise Conflict("it is there already, and is not what is written now")
        return self.content

    def cut(self, content: bytes, before: bytes | None) -> Cut:  # noqa: ARG002 (of the protocol)
        """See `Edit`; what was there before was the same file."""
        if content != self.content:
            raise Conflict("somebody has changed it since")
        return Cut(None)

    def there(self, content: bytes) -> bool:
        """See `Edit`."""
        return content == self.content

    def marked(self, content: bytes) -> bool:
        """See `Edit`; of the file of another version the receipt tells."""
        return content == self.content


@dataclass(frozen=True, slots=True)
class Hooks:
    """Groups of hooks in a JSON file, one for each event.

    Attributes:
        mark: a word that the command of each of our hooks has, of every version, and no other command.
    """

    groups: Mapping[str, Mapping[str, Any]]
    mark: str

    def put(self, content: bytes | None) -> bytes:
        """See `Edit`."""
        if content is not None:
            return json_text.with_hooks(_text(content), self.groups).encode()
        return json_text.whole({"hooks": {event: [g] for event, g in self.groups.items()}})

    def cut(self, content: bytes, before: bytes | None) -> Cut:
        """See `Edit`."""
        had = None if before is None else _text(before)
        left = json_text.without_hooks(_text(content), self._ours, had)
        if had is None and json_text.parsed(left) == {}:
            return Cut(None)
        return Cut(left.encode())

    def there(self, content: bytes) -> bool:
        """See `Edit`."""
        found = json_text.handlers(json_text.parsed(_text(content)))
        ours = [each for each in found if self._ours(each[1])]
        wanted = [(event, each) for event, g in self.groups.items() for each in g["hooks"]]
        return sorted(ours, key=repr) == sorted(wanted, key=repr)

    def marked(self, content: bytes) -> bool:
        """See `Edit`."""
        found = json_text.handlers(json_text.parsed(_text(content)))
        return any(self._ours(handler) for _, handler in found)

    def _ours(self, handler: json_text.Handler) -> bool:
        return self.mark in str(handler.get("command", ""))


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a TOML file.

    Attributes:
        mark: the comment that its header has.
    """

    path: toml_text.Path
    values: Mapping[str, Any]
    mark: str

    def put(self, content: bytes | None) -> bytes:
        """See `Edit`."""
        text = _text(content or b"")
        if toml_text.table(toml_text.parsed(text), self.path) is not None:
            raise Conflict(f"it has {'.'.join(self.path)} already, and not from here")
        return toml_text.with_table(text, self.path, self.values, self.mark).encode()

    def cut(self, content: bytes, before: bytes | None) -> Cut:
        """See `Edit`."""
        had = None if before is None else _text(before)
        left, named = toml_text.without_table(_text(content), self.path, self.values, had)
        gone = had is None and not left.strip()
        return Cut(None if gone else left.encode(), tuple(named))

    def there(self, content: bytes) -> bool:
        """See `Edit`; more of others below it is no difference."""
        said = toml_text.table(toml_text.parsed(_text(content)), self.path)
        return isinstance(said, dict) and {**said, **self.values} == said

    def marked(self, content: bytes) -> bool:
        """See `Edit`."""
        text = _text(content)
        said = toml_text.table(toml_text.parsed(text), self.path)
        return said is not None and self.mark in text


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("it is not UTF-8") from error
