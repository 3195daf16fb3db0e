"""A snapshot: rows of one database, read in one transaction, as one portable file.

`rebuild` begins from it, `retention` deletes from the log only what it holds, and `backup` and `move-store` carry
rows by it. It knows no dialect of SQL, so what one database wrote another one loads. It is gzip over lines of JSON:

    {"postroom": "snapshot", "format": 1, "revision": …, "org": …, "created": …, "cursors": {stream: sequence}}
    {"table": …, "columns": […]}          before the rows of each table
    […]                                   a row; bytes are base64
    {"rows": {table: number}, "sha256": of every byte before this line}

It is streamed in both directions, so that a large database needs no more memory than a small one.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Boolean, LargeBinary, Table

from postroom.disk import sync
from postroom.errors import EnvironmentFault, StateUnwritable

NAME = "projection.snapshot"
"""Name of the last snapshot in its folder."""

FORMAT = 1

CHUNK = 100
"""Rows that are read, or loaded, at once."""

PAUSE = 0.002
"""Seconds between two chunks: a snapshot in a thread leaves the interpreter to others at least half of the time."""

LEVEL = 1
"""Of gzip: the text shrinks to a quarter, and higher levels cost several times as much for little."""

Rows = Callable[[Table], Iterable[Sequence[Any]]]
"""All rows of a table, each in the order of the table's columns; every call sees the same transaction."""


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The first line of a snapshot.

    Attributes:
        revision: of the tables that it was taken from.
        cursors: for each stream the sequence up to which the rows hold its effect.
    """

    revision: str
    org: str
    created: float
    cursors: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some rows of one table, as they were read from a snapshot."""

    table: str
    rows: list[dict[str, Any]]


def write(path: Path, header: SnapshotHeader, tables: Sequence[Table], rows: Rows) -> None:
    """Write a snapshot to `path`, verify it, and put it in place of the last one. Blocks: call in a thread.

    The last one stays until the new one is verified and on disk.

    Raises:
        StateUnwritable: the disk is full, or not writable.
        EnvironmentFault: what was written cannot be read again; the last one was kept.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _private(new) as file:
            _write(file, header, tables, rows)
            file.flush()
            os.fsync(file.fileno())
        verify(new)
        new.replace(path)
        sync(path.parent)
    except OSError as error:
        raise StateUnwritable(f"cannot write {path}: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)


def _private(path: Path) -> BinaryIO:
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")  # noqa: PTH123


def _write(file: BinaryIO, header: SnapshotHeader, tables: Sequence[Table], rows: Rows) -> None:
    seen = hashlib.sha256()
    counted: dict[str, int] = {}
    with gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as packed:

        def put(text: str) -> None:
            content = text.encode()
            seen.update(content)
            packed.write(content)

        put(_line({"postroom": "snapshot", "format": FORMAT, **asdict(header)}))
        for table in tables:
            put(_line({"table": table.name, "columns": [column.name for column in table.columns]}))
            counted[table.name] = 0
            for chunk in _chunks(rows(table)):
                put("".join(lines(table, chunk)))
                counted[table.name] += len(chunk)
                time.sleep(PAUSE)
        packed.write(_line({"rows": counted, "sha256": seen.hexdigest()}).encode())


def lines(table: Table, rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The line of each row, the same whichever database it is from."""
    return map(_line, _encoded(table, rows))


def _line(value: Any) -> str:
    return _JSON(value) + "\n"


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(rows)
    while chunk := list(islice(left, CHUNK)):
        yield chunk


def _encoded(table: Table, rows: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    special = _special(table, _encode_bytes)
    for row in rows:
        values = list(row)
        for at, convert in special:
            values[at] = convert(values[at])
        yield values


def _special(table: Table, of_bytes: Callable[[Any], Any]) -> list[tuple[int, Callable]]:
    """The columns whose values JSON, or another dialect, has in another form: position and conversion."""
    found: list[tuple[int, Callable]] = []
    for at, column in enumerate(table.columns):
        if isinstance(column.type, LargeBinary):
            found.append((at, of_bytes))
        elif isinstance(column.type, Boolean):
            found.append((at, _boolean))
    return found


def _encode_bytes(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _decode_bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value, validate=True)


def _boolean(value: Any) -> bool | None:
    return None if value is None else bool(value)


def verify(path: Path) -> SnapshotHeader:
    """Check every byte of a snapshot; returns its header.

    Raises:
        EnvironmentFault: it is damaged or incomplete, or a newer Postroom wrote it.
    """
    with opened(path) as file:
        for _ in file.parts(()):
            pass
        return file.header


class SnapshotReader:
    """A snapshot that is read from its beginning to its end."""

    def __init__(self, lines: gzip.GzipFile) -> None:
        self._lines = lines
        self._seen = hashlib.sha256()
        first = self._next()
        if first.get("postroom") != "snapshot":
            raise ValueError("no snapshot")
        if first["format"] != FORMAT:
            raise EnvironmentFault(
                f"the snapshot has format {first['format']}, this Postroom knows {FORMAT}",
                remedy="use the Postroom that wrote it",
            )
        cursors = {str(stream): int(seq) for stream, seq in first["cursors"].items()}
        self.header = SnapshotHeader(
            str(first["revision"]), str(first["org"]), float(first["created"]), cursors
        )

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        self._seen.update(line)
        return json.loads(line)

    def parts(self, tables: Iterable[Table]) -> Iterator[TablePart]:
        """The rows of `tables`, in the file's order; the end of the iteration has checked the whole file."""
        wanted = {table.name: table for table in tables}
        seen, counted, name = self._seen, {}, ""
        table: Table | None = None
        columns: list[str] = []
        rows: list[list[Any]] = []
        for line in self._lines:
            if line.startswith(b"["):
                counted[name] += 1
                if table is not None:
                    rows.append(json.loads(line))
                    if len(rows) == CHUNK:
                        yield _part(table, columns, rows)
                        rows = []
            else:
                if table is not None and rows:
                    yield _part(table, columns, rows)
                    rows = []
                said = json.loads(line)
                if "sha256" in said:
                    break
                name, columns = said["table"], said["columns"]
                table, counted[name] = wanted.get(name), 0
            seen.update(line)
        else:
            raise EOFError("it ends too early")
        if said != {"rows": counted, "sha256": seen.hexdigest()} or self._lines.read(1):
            raise ValueError("its checksum is wrong")


def _part(table: Table, columns: list[str], rows: list[list[Any]]) -> TablePart:
    known = {column.name for column in table.columns}
    at = {name: number for number, name in enumerate(columns) if name in known}
    made = [{name: row[number] for name, number in at.items()} for row in rows]
    for number, convert in _special(table, _decode_bytes):
        name = table.columns[number].name
        if name in at:
            for row in made:
                row[name] = convert(row[name])
    return TablePart(table.name, made)


@contextmanager
def opened(path: Path) -> Generator[SnapshotReader, None, None]:
    """Read a snapshot. Blocks: use it in a thread.

    Raises:
        EnvironmentFault: it is damaged or incomplete, or a newer Postroom wrote it.
        FileNotFoundError: there is none.
    """
    try:
        with gzip.open(path, "rb") as lines:
            yield SnapshotReader(lines)
    except FileNotFoundError:
        raise
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise EnvironmentFault(f"the snapshot {path} is damaged: {error}") from error


def older(cursors: Mapping[str, int], held: Mapping[str, int]) -> bool:
    """Whether a projection with `cursors` lacks what a snapshot holds, so that the log may not have it any more."""
    return any(cursors.get(stream, 0) < seq for stream, seq in held.items())
