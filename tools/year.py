"""Fill a state folder as a busy post room leaves it after so many days: `python -m tools.year STATE DAYS`.

A day has 5,000 messages and 1,000 tasks between ten workers. Their rows are all there, and the log has what retention
leaves in it: the last day. The post room must have been up once, and be down.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, LargeBinary, Table, Text

from postroom.bus.supervisor import Supervisor
from postroom.control import nats_server
from postroom.control.base import open_bus
from postroom.control.certificate import open_certificate
from postroom.control.endpoints import plan
from postroom.control.statefile import StateLock
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store.schema import a2a_task_events, a2a_tasks, cursors, messages
from postroom_a2a.messages import text_message

MESSAGES, TASKS, EVENTS = 5000, 1000, 4
"""Messages and tasks of a day, and events of a task."""

DAY = 86400.0
TEXT = "a sentence of a message that somebody has written about something " * 4
WORKERS = [f"{number + 1:032x}" for number in range(10)]
AT_ONCE = 64


def fill(state: Path, days: int) -> None:
    """Fill the folder."""
    settings = Settings(state=state, nats_port=0)
    lock = StateLock.acquire(settings)
    try:
        asyncio.run(_fill_log(settings, days))
        _fill_rows(settings.database, days)
    finally:
        lock.release()


def _fill_rows(path: Path, days: int) -> None:
    first = time.time() - days * DAY
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA journal_mode = MEMORY")
        driver.execute("PRAGMA synchronous = OFF")
        shapes = driver.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
        driver.execute("BEGIN")
        for name, _ in shapes:
            driver.execute(f"DROP INDEX {name}")
        _insert(driver, messages, _messages(days, first))
        _insert(driver, a2a_tasks, _tasks(days, first))
        _insert(driver, a2a_task_events, _events(days, first))
        _insert(driver, cursors, _cursors(days))
        for _, sql in shapes:
            driver.execute(sql)
        driver.execute("COMMIT")
        driver.execute("PRAGMA journal_mode = WAL")


def _insert(driver: sqlite3.Connection, table: Table, rows: Iterator[dict[str, Any]]) -> None:
    empty = {column.name: _empty(column.type) for column in table.columns}
    names = list(empty)
    marks = ", ".join("?" for _ in names)
    driver.executemany(
        f"INSERT OR REPLACE INTO {table.name} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 (our own names)
        ([(empty | row)[name] for name in names] for row in rows),
    )


def _empty(kind: object) -> object:
    if isinstance(kind, Text):
        return ""
    return b"" if isinstance(kind, LargeBinary) else False if isinstance(kind, Boolean) else 0


def _messages(days: int, first: float) -> Iterator[dict[str, Any]]:
    for number in range(days * (MESSAGES + TASKS)):
        requests = number % (MESSAGES + TASKS) >= MESSAGES
        at = first + number * DAY / (MESSAGES + TASKS)
        yield {
            "seq": number + 1,
            "id": f"{number:032x}",
            "sender": WORKERS[number % 10],
            "recipient": WORKERS[(number // 10 + 1) % 10],
            "text": TEXT,
            "message": json.dumps(text_message(f"{number:032x}", TEXT)),
            "context_id": "",
            "sent_at": at,
            "stored_at": at,
            "updated_at": at + 1,
            "state": "answered" if requests else "seen",
            "final": True,
            "requests": requests,
        }


def _tasks(days: int, first: float) -> Iterator[dict[str, Any]]:
    for number in range(days * TASKS):
        day, of_day = divmod(number, TASKS)
        requested = day * (MESSAGES + TASKS) + MESSAGES + of_day
        at = first + requested * DAY / (MESSAGES + TASKS)
        task = {"id": f"{number:032x}", "status": {"state": "TASK_STATE_COMPLETED"}, "text": TEXT}
        yield {
            "id": f"{number:032x}",
            "worker": WORKERS[(requested // 10 + 1) % 10],
            "requester": WORKERS[requested % 10],
            "request": f"{requested:032x}",
            "requested_seq": requested + 1,
            "text": TEXT,
            "state": "completed",
            "seq": number * EVENTS + EVENTS,
            "attempt": 1,
            "snapshot": json.dumps(task),
            "final": True,
            "created_at": at,
            "updated_at": at + 60,
        }


def _events(days: int, first: float) -> Iterator[dict[str, Any]]:
    event = json.dumps({"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"}, "text": TEXT}})
    for number in range(days * TASKS * EVENTS):
        task, step = divmod(number, EVENTS)
        yield {
            "seq": number + 1,
            "task": f"{task:032x}",
            "worker": WORKERS[task % 10],
            "state": ("submitted", "working", "working", "completed")[step],
            "attempt": 1,
            "at": first + task * DAY / TASKS,
            "event": event,
        }


def _cursors(days: int) -> Iterator[dict[str, Any]]:
    ends = _ends(days)
    for projection, stream in (
        ("mail", "INBOX"),
        ("mail", "RECEIPTS"),
        ("tasks", "INBOX"),
        ("tasks", "TASKS"),
    ):
        yield {"projection": projection, "stream": stream, "seq": ends[stream]}


def _ends(days: int) -> dict[str, int]:
    """The last sequence of each stream."""
    inbox = days * (MESSAGES + TASKS)
    return {"INBOX": inbox, "RECEIPTS": 2 * inbox, "TASKS": days * TASKS * EVENTS}


async def _fill_log(settings: Settings, days: int) -> None:
    trust = Trust.load_or_create(settings.keys, DEFAULT_ORG).of(DEFAULT_ORG)
    endpoints = plan(settings)
    certificate = open_certificate(settings, endpoints)
    host = Supervisor(nats_server.server_config(settings, trust, endpoints, certificate))
    async with AsyncExitStack() as stack:
        await host.start()
        stack.push_async_callback(host.stop)
        bus, admin, _ = await open_bus(settings, trust, host, stack)
        slots = asyncio.Semaphore(AT_ONCE)

        async def put(subject: str, payload: bytes) -> None:
            async with slots:
                await bus.publish(subject, payload)

        last_day = _ends(1)
        for stream, end in _ends(days).items():
            # The next record gets the number behind those that retention has deleted.
            begin = end - last_day[stream] + 1
            await admin.jetstream.api(f"STREAM.PURGE.{stream}", {"seq": begin})
            async with asyncio.TaskGroup() as tasks:
                for number in range(last_day[stream]):
                    tasks.create_task(put(*_record(stream, number)))


def _record(stream: str, number: int) -> tuple[str, bytes]:
    one, other = WORKERS[number % 10], WORKERS[(number // 10 + 1) % 10]
    if stream == "INBOX":
        name = f"{number:032x}"
        envelope = Envelope(name, one, text_message(name, TEXT), time.time())
        return subjects.inbox(one, other), envelope.encode()
    if stream == "RECEIPTS":
        return subjects.receipts(one, other), b'{"state":"seen"}'
    return f"worker.{one}.tasks.{number:032x}.working", TEXT.encode() * 3


if __name__ == "__main__":
    os.umask(0o077)
    fill(Path(sys.argv[1]).absolute(), int(sys.argv[2]))
