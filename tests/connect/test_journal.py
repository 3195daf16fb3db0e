"""The journal of `run`: what it reads is what it saved, also after a kill, and from another version."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

from postroom.connect.journal import Journal, Record
from postroom.connect.mailbox import Event, Kind, Mailbox, Rules
from tests.connect.test_mailbox import mail_to_session

RECORD = Record("c" * 32, "claude", "s1", "s1", "app", "a2a_secret", pid=1)


def filled() -> Mailbox:
    box = Mailbox("app", Rules())
    for seq in range(1, 12):
        box.add(mail_to_session(seq))
    box.on(Event(Kind.PROMPT, "t1"), 1.0)
    offer = box.on(
        Event(Kind.BATCH, "t1", frozenset({"a"}), hands=True, how="hook PostToolBatch"), 2.0
    )
    assert offer
    box.took(offer.ids)
    return box


def test_what_is_read_is_what_was_saved(tmp_path: Path):
    box = filled()
    journal = Journal(tmp_path / "sessions.db")
    journal.save(RECORD, box, sync=True)

    ((record, found),) = Journal(tmp_path / "sessions.db").sessions()

    assert record == RECORD
    assert list(found.letters.values()) == list(box.letters.values())
    assert replace(found, rules=box.rules, letters={}) == replace(box, letters={}, changed=set())
    assert (tmp_path / "sessions.db").stat().st_mode & 0o777 == 0o600
    assert "secret" not in repr(record)


def test_what_is_over_is_gone(tmp_path: Path):
    box = filled()
    journal = Journal(tmp_path / "sessions.db")
    journal.save(RECORD, box)
    box.over("m1.")
    journal.save(RECORD, box)

    ((_, found),) = journal.sessions()

    assert "m1." not in found.letters
    journal.forget(RECORD.uid)
    assert journal.sessions() == []


def test_what_another_version_knows_more_of_is_no_matter(tmp_path: Path):
    path = tmp_path / "sessions.db"
    journal = Journal(path)
    journal.save(RECORD, filled())
    with sqlite3.connect(path) as sql:
        for table in ("sessions", "letters"):
            for row, said in sql.execute(f"SELECT rowid, said FROM {table}").fetchall():
                more = json.dumps({**json.loads(said), "of later": 1})
                sql.execute(f"UPDATE {table} SET said = ? WHERE rowid = ?", (more, row))

    ((record, found),) = Journal(path).sessions()

    assert record == RECORD
    assert len(found.letters) == 11


def test_a_damaged_one_is_set_aside(tmp_path: Path):
    path = tmp_path / "sessions.db"
    path.write_bytes(b"no database" * 1000)

    assert Journal(path).sessions() == []
    assert path.with_name("sessions.db.damaged").exists()
