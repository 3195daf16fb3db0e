"""The journal of `postroom connect run`: sessions with their keys, and mail on its way, on disk before any text leaves.

A SQLite database that only this user can read. Each change is one transaction. What is handed over is synced to disk
before it leaves: after SIGKILL, and after a power cut, the next run knows what may have been shown.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from postroom.connect.mailbox import Kind, Letter, Mailbox
from postroom.errors import StateUnwritable
from postroom.protocol.receipts import State

_TABLES = """
CREATE TABLE IF NOT EXISTS sessions (uid TEXT PRIMARY KEY, said TEXT NOT NULL, box TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS letters (session TEXT, id TEXT, said TEXT NOT NULL, PRIMARY KEY (session, id));
CREATE TABLE IF NOT EXISTS places (place TEXT PRIMARY KEY, after TEXT NOT NULL);
"""

_BOX = ("turn", "turns", "busy", "in_batch", "went_on", "nudged", "pushes")
_SETS = ("tools",)


@dataclass(slots=True)
class Record:
    """A session as the journal has it.

    Attributes:
        uid: of its agent.
        client: name of the client.
        key: the client's own identity of it, at the post room.
        session: the client's id of it; `key` has the process, too, where one id is open twice.
        secret: its API key.
        owner: uid of its person.
        place: the post room that it is registered at.
        pid: the client's process; 0 for none known.
        began: when that process began, in the system's ticks: ids of processes are used again.
        transcript: path of the client's own record.
        alive: it is open.
    """

    uid: str
    client: str
    key: str
    session: str
    nick: str
    secret: str = ""
    owner: str = ""
    place: str = ""
    folder: str = ""
    pid: int = 0
    began: str = ""
    transcript: str = ""
    alive: bool = True

    def __repr__(self) -> str:
        return f"Record({self.client} @{self.nick})"  # its key is in no log


class Journal:
    """The database at `path`; one that is damaged is set aside. Raises StateUnwritable where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        try:
            self._open(path)
        except (OSError, sqlite3.OperationalError) as error:
            raise StateUnwritable(f"cannot open {path}: {error}") from error
        except sqlite3.DatabaseError:
            # Sessions register again as the same agents, and the post room has their unread mail.
            path.replace(path.with_name(f"{path.name}.damaged"))
            self._open(path)

    def _open(self, path: Path) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._sql = sqlite3.connect(path, isolation_level=None)
        self._sql.execute("PRAGMA journal_mode=WAL")
        self._sql.executescript(_TABLES)
        self._sync = ""
        self._saved: dict[str, tuple[str, str]] = {}

    def close(self) -> None:
        """Close it."""
        self._sql.close()

    def sessions(self) -> list[tuple[Record, Mailbox]]:
        """All of them, each with its mail."""
        found = []
        for said, box in self._sql.execute("SELECT said, box FROM sessions").fetchall():
            record = Record(**_known(Record, said))
            rows = self._sql.execute("SELECT said FROM letters WHERE session = ?", (record.uid,))
            letters = sorted((_letter(row) for (row,) in rows), key=lambda each: each.mail["seq"])
            mailbox = Mailbox(record.nick, **_known(Mailbox, box))
            mailbox.letters = {each.mail["id"]: each for each in letters}
            found.append((record, mailbox))
        return found

    def save(self, record: Record, box: Mailbox, *, sync: bool = False) -> None:
        """Save a session and what has changed of its mail; raises StateUnwritable.

        Args:
            sync: return when it is on disk; else a crash of the machine may lose it, SIGKILL does not.
        """
        kept = [box.letters[each] for each in box.changed if each in box.letters]
        over = [each for each in box.changed if each not in box.letters]
        said = (
            json.dumps(asdict(record)),
            json.dumps({name: getattr(box, name) for name in _BOX}),
        )
        if not box.changed and self._saved.get(record.uid) == said:
            return
        with self._changing(sync=sync):
            self._sql.execute("REPLACE INTO sessions VALUES (?, ?, ?)", (record.uid, *said))
            self._sql.executemany(
                "REPLACE INTO letters VALUES (?, ?, ?)",
                [(record.uid, each.mail["id"], _said(each)) for each in kept],
            )
            self._sql.executemany(
                "DELETE FROM letters WHERE session = ? AND id = ?",
                [(record.uid, each) for each in over],
            )
        self._saved[record.uid] = said
        box.changed.clear()

    def forget(self, uid: str) -> None:
        """Delete a session that has ended for good; raises StateUnwritable."""
        with self._changing():
            self._sql.execute("DELETE FROM letters WHERE session = ?", (uid,))
            self._sql.execute("DELETE FROM sessions WHERE uid = ?", (uid,))

    def after(self, place: str) -> str:
        """The last record of a post room's feed that is here, "" for none."""
        row = self._sql.execute("SELECT after FROM places WHERE place = ?", (place,)).fetchone()
        return row[0] if row else ""

    def reached(self, place: str, after: str) -> None:
        """Note how far the feed has been read; raises StateUnwritable."""
        with self._changing():
            self._sql.execute("REPLACE INTO places VALUES (?, ?)", (place, after))

    @contextmanager
    def _changing(self, *, sync: bool = False) -> Generator[None]:
        try:
            mode = "FULL" if sync else "NORMAL"
            if mode != self._sync:
                self._sql.execute(f"PRAGMA synchronous={mode}")
                self._sync = mode
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StateUnwritable(f"the journal of sessions cannot be written: {error}") from error


def _said(letter: Letter) -> str:
    values: dict[str, Any] = {each.name: getattr(letter, each.name) for each in fields(letter)}
    return json.dumps(values | {name: sorted(values[name]) for name in _SETS})


def _letter(said: str) -> Letter:
    values = _known(Letter, said)
    values["tools"] = frozenset(values["tools"])
    values["told"] = State(values["told"])
    values["at"] = Kind(values["at"]) if values["at"] else None
    return Letter(**values)


def _known(kind: type[Any], said: str) -> dict[str, Any]:
    """The values that this version knows: another one may have written it."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in json.loads(said).items() if name in names}
