"""A page costs the same however much there is, on both databases: counted in steps and blocks, never in time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from postroom.store.database import Store
from postroom.store.search import INDEXES

FEW = 1_000
MANY = pytest.param(100_000, marks=pytest.mark.slow)

PEERS = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)
TASK = "7" * 32

# Both dialects read it. Agents take turns. What is open is among the first rows, where a search from the end finds it
# last.
OPEN = f"i % 5 = 0 AND i <= {FEW}"
ROWS = """
WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
INSERT INTO {table} ({columns}) SELECT {values} FROM n
"""
UID = "CASE i % 4 WHEN {0} THEN '{a}' WHEN {1} THEN '{b}' WHEN {2} THEN '{c}' ELSE '{d}' END"


def uid(turn: int) -> str:
    order = [(place - turn) % 4 for place in range(3)]
    return UID.format(*order, **dict(zip("abcd", PEERS, strict=True)))


TABLES = {
    "messages": {
        "seq": "i",
        "id": "'m' || i",
        "sender": uid(0),
        "recipient": uid(1),
        "text": "'hello'",
        "message": "'{}'",
        "context_id": "''",
        "expects_reply": "i < 0",
        "reply_to": "CASE i % 3 WHEN 0 THEN 'm' || (i - 1) ELSE '' END",
        "requeue_of": "''",
        "sent_at": "i",
        "stored_at": "i",
        "expires_at": "0",
        "state": f"CASE WHEN {OPEN} THEN 'accepted' ELSE 'seen' END",
        "reason": "''",
        "final": f"NOT ({OPEN})",
        "requests": "i < 0",
        "updated_at": "i",
    },
    "threads": {
        "uid": uid(0),
        "thread": "'t' || i",
        "first": "i",
        "last": "i",
        "count": "1",
        "others": uid(1),
    },
    "posts": {
        "seq": "i",
        "id": "'p' || i",
        "project": "CASE i % 2 WHEN 0 THEN 'main' ELSE 'other' END",
        "sender": uid(0),
        "text": "'hello'",
        "message": "'{}'",
        "at": "i",
    },
    "announcements": {
        "seq": "i",
        "id": "'n' || i",
        "sender": uid(0),
        "text": "'hello'",
        "message": "'{}'",
        "at": "i",
    },
    "deadletters": {
        "id": "i",
        "origin": "'o' || i",
        "subject": "'s'",
        "sender": uid(0),
        "recipient": uid(1),
        "message_id": "'m' || i",
        "payload": "{bytes}",
        "reason": "'r'",
        "attempts": "1",
        "at": "i",
    },
    "a2a_tasks": {
        "id": "'t' || i",
        "worker": uid(0),
        "requester": uid(1),
        "request": "'m' || i",
        "requested_seq": "i",
        "context_id": "'c'",
        "skill": "''",
        "stream": "i < 0",
        "text": "'hello'",
        "state": f"CASE WHEN {OPEN} THEN 'input-required' ELSE 'completed' END",
        "seq": "i",
        "attempt": "1",
        "lost": "0",
        "runner": "''",
        "released": "i < 0",
        "said": "''",
        "snapshot": "'{}'",
        "final": f"NOT ({OPEN})",
        "created_at": "i",
        "updated_at": "i",
    },
    "a2a_task_events": {
        "seq": "i",
        "task": f"'{TASK}'",
        "worker": f"'{PEERS[0]}'",
        "state": "'working'",
        "attempt": "1",
        "runner": "''",
        "at": "i",
        "event": "'{}'",
    },
}

ONE, TWO = PEERS[0], PEERS[1]
PAGES: dict[str, Callable[[Store, int], object]] = {
    "inbox": lambda store, _: store.messages.inbox(TWO, unread=False, limit=50),
    "archive": lambda store, _: store.messages.inbox(TWO, unread=False, archived=True, limit=50),
    "threads": lambda store, _: store.threads.page(ONE, 0, 50),
    "threads before": lambda store, last: store.threads.page(ONE, last // 2, 50),
    "unread of a thread": lambda store, _: store.messages.unread_in(TWO, ["t0", "t1"]),
    "unread posts": lambda store, last: store.reading.new_posts(ONE, "main", last - 90),
    "unread": lambda store, _: store.messages.inbox(TWO, unread=True, limit=50),
    "to": lambda store, last: store.messages.to_past(TWO, last // 2, 50),
    "chat": lambda store, _: store.messages.chat(ONE, TWO, limit=50),
    "chat before": lambda store, last: store.messages.chat(ONE, TWO, limit=50, before=last // 2),
    "chat after": lambda store, last: store.messages.chat(ONE, TWO, limit=50, after=last // 2),
    "search": lambda store, _: store.messages.search(words=["hello"], limit=50),
    "search of a party": lambda store, _: store.messages.search(parties=[ONE], limit=50),
    "search of few": lambda store, _: store.messages.search(
        words=["hello"], parties=[ONE, PEERS[2]], limit=50
    ),
    "search of nothing": lambda store, _: store.messages.search(words=["absent"], limit=50),
    "search of posts": lambda store, _: store.records.search_posts("main", ["hello"], limit=50),
    "projects": lambda store, _: store.records.projects(),
    "posts": lambda store, _: store.records.project_posts("main", limit=50),
    "posts past": lambda store, last: store.records.posts_past(last // 2, 50),
    "outbox": lambda store, _: store.announcements.of(ONE, limit=50),
    "outbox before": lambda store, last: store.announcements.of(ONE, limit=50, before=last // 2),
    "outbox after": lambda store, last: store.announcements.of(ONE, limit=50, after=last // 2),
    "dead letters": lambda store, _: store.records.dead_letters(50),
    "tasks": lambda store, _: store.tasks.list_tasks(limit=50),
    "tasks before": lambda store, last: store.tasks.list_tasks(limit=50, before=last // 2),
    "open tasks": lambda store, _: store.tasks.list_tasks(open_only=True, limit=50),
    "tasks of a worker": lambda store, _: store.tasks.list_tasks(worker=ONE, limit=50),
    "tasks of a requester": lambda store, _: store.tasks.list_tasks(requester=TWO, limit=50),
    "final tasks": lambda store, _: store.tasks.list_tasks(open_only=False, limit=50),
    "tasks in a state": lambda store, _: store.tasks.list_tasks(states=["completed"], limit=50),
    "a worker's open tasks": lambda store, _: store.tasks.open_tasks(ONE, limit=50),
    "events": lambda store, last: store.tasks.events_of(TASK, last // 2, 50),
    "events past": lambda store, last: store.tasks.events_past(last // 2, 50),
}


class Counting:
    """Passes statements on and adds up what they cost."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.cost = 0

    def executemany(self, sql: str, values: Any, /) -> Any:
        return self.driver.executemany(sql, values)

    def close(self) -> None:
        self.driver.close()


class Steps(Counting):
    """Of SQLite's machine."""

    driver: sqlite3.Connection

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
        def step() -> int:
            self.cost += 1
            return 0

        self.driver.set_progress_handler(step, 1)
        try:
            found = self.driver.execute(sql, values).fetchall()
        finally:
            self.driver.set_progress_handler(None, 1)
        return Fetched(found)


class Blocks(Counting):
    """Of PostgreSQL's cache."""

    driver: psycopg.RawCursor

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"
        (row,) = self.driver.execute(explain.encode(), values).fetchall()
        plan = row[0][0]["Plan"]
        self.cost += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return Fetched(self.driver.execute(sql.encode(), values).fetchall())


class Fetched:
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.rowcount = len(rows)

    def fetchall(self) -> list[Any]:
        return self.rows

    def fetchone(self) -> Any:
        return self.rows[0] if self.rows else None


def fill(store: Store, first: int, last: int) -> None:
    postgres = store.session.dialect.name == "postgresql"
    for table, columns in TABLES.items():
        values = ", ".join(columns.values()).replace("{bytes}", "'\\x00'" if postgres else "x'00'")
        statement = ROWS.format(
            first=first, last=last, table=table, columns=", ".join(columns), values=values
        )
        store.session.driver.execute(statement)
    for index in INDEXES:
        index.add_all(store.session, first - 1)
    if postgres:  # it does so by itself, some time later; SQLite never does
        store.session.driver.execute("ANALYZE")


def costs(store: Store, last: int) -> dict[str, int]:
    """What each page costs."""
    found = {}
    for name, ask in PAGES.items():
        with counting(store) as counter:
            ask(store, last)
        found[name] = counter.cost
    return found


@contextmanager
def counting(store: Store) -> Generator[Counting]:
    driver: Any = store.session.driver
    counter = (Steps if isinstance(driver, sqlite3.Connection) else Blocks)(driver)
    store.session.driver = counter
    try:
        yield counter
    finally:
        store.session.driver = driver


@pytest.mark.requirement("store-contract-kept")
@pytest.mark.parametrize("many", [6_000, MANY])
def test_a_page_of_many_costs_hardly_more_than_one_of_few(empty_store: Store, many: int):
    fill(empty_store, 1, FEW)
    before = costs(empty_store, FEW)
    fill(empty_store, FEW + 1, many)
    after = costs(empty_store, many)
    # A larger index has another level, through which each row of a page may be looked up.
    levels = 3 * 50
    dearer = {
        name: (before[name], after[name])
        for name in PAGES
        if after[name] > 1.3 * before[name] + levels
    }
    assert dearer == {}
