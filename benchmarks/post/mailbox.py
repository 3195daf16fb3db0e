"""The smallest mailbox that keeps what it has accepted: one table of SQLite, each message a transaction on disk."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_TABLE = """CREATE TABLE messages (
  id TEXT PRIMARY KEY, sender TEXT, recipient TEXT, body TEXT, key TEXT, read_at TEXT,
  UNIQUE (sender, recipient, key))"""


class Mailbox:
    """Implements `senders.Sender`: no HTTP, no keys, no receipts, and one thread that writes."""

    def __init__(self, file: Path, text: str) -> None:
        self._text = text
        self._thread = ThreadPoolExecutor(1)
        self._database = self._thread.submit(self._open, file).result()

    @staticmethod
    def _open(file: Path) -> sqlite3.Connection:
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(_TABLE)
        return database

    async def prepare(self, count: int) -> Sequence[str]:
        """Ids of messages."""
        return [uuid.uuid4().hex for _ in range(count)]

    async def send(self, item: str) -> None:
        """Store one; it is on disk on return."""
        row = (item, "alice", "bob", self._text, item, None)
        insert = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._database.execute, insert, row)

    def close(self) -> None:
        """End the thread."""
        self._thread.submit(self._database.close).result()
        self._thread.shutdown()
