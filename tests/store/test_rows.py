"""Agents, keys, memberships and workers, as stored; and that the questions of the watches use their indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import IntegrityError

from postroom.store import agents, messages, pending, records, workers
from postroom.store.agents import Agent
from postroom.store.messages import MessageRow
from postroom.store.schema import metadata
from postroom.store.workers import RUNNING, STOPPED, WorkerRecord

BOB = Agent("b" * 32, "default", "bob", "worker", 1.0)
WORKER = WorkerRecord(
    uid=BOB.uid,
    project="main",
    template='[worker]\nname = "bob"\n',
    sandbox="bubblewrap",
    level="enforced",
    desired=RUNNING,
    token_sha256="ab" * 32,
    created_at=1.0,
    files={"reader.py": "cHJpbnQoKQ=="},
    overrides={"folder": "/x"},
)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.connect() as connected:
        agents.add_agent(connected, BOB, "bob", b"secret")
        yield connected
    engine.dispose()


def test_a_worker_is_read_as_it_was_stored(connection: Connection):
    workers.add_worker(connection, WORKER)
    assert workers.worker_by_uid(connection, BOB.uid) == WORKER
    assert workers.all_workers(connection, desired=RUNNING) == [WORKER]
    assert workers.worker_by_token(connection, WORKER.token_sha256) == BOB.uid
    assert workers.worker_by_token(connection, "") == ""


def test_what_a_worker_should_do_and_its_token_can_change(connection: Connection):
    workers.add_worker(connection, WORKER)
    assert workers.set_desired(connection, BOB.uid, STOPPED)
    assert workers.set_token(connection, BOB.uid, "cd" * 32)
    assert workers.all_workers(connection) == [
        replace(WORKER, desired=STOPPED, token_sha256="cd" * 32)
    ]
    assert workers.all_workers(connection, desired=RUNNING) == []
    assert workers.set_exceeded(connection, BOB.uid, "time limit of 1 s exceeded")
    ended = workers.worker_by_uid(connection, BOB.uid)
    assert ended is not None
    assert ended.exceeded == "time limit of 1 s exceeded"
    assert workers.set_begun(connection, BOB.uid, 7.0)
    begun = workers.worker_by_uid(connection, BOB.uid)
    assert begun is not None
    assert (begun.begun_at, begun.exceeded) == (7.0, "")
    workers.remove_worker(connection, BOB.uid)
    assert workers.worker_by_uid(connection, BOB.uid) is None


@pytest.mark.requirement("api-key-required")
def test_a_key_is_its_owners_until_it_is_revoked_or_the_owner_retires(connection: Connection):
    agents.add_api_key(connection, "k1", BOB.uid, "hash1", 1.0)
    agents.add_api_key(connection, "k2", BOB.uid, "hash2", 1.0)
    assert agents.api_key_owner(connection, "hash1") == BOB.uid
    assert agents.api_key_owner(connection, "other") == ""
    assert agents.revoke_api_key(connection, "k1", 2.0)
    assert not agents.revoke_api_key(connection, "k1", 3.0)
    assert agents.api_key_owner(connection, "hash1") == ""
    assert agents.api_key_owner(connection, "hash2") == BOB.uid
    agents.retire_agent(connection, BOB.uid, 2.0)
    assert agents.api_key_owner(connection, "hash2") == ""


def test_two_live_agents_cannot_share_a_name_even_past_the_directory(connection: Connection):
    with pytest.raises(IntegrityError):
        agents.add_agent(connection, replace(BOB, uid="c" * 32), "bob", b"secret")


def test_members_are_found_both_ways(connection: Connection):
    agents.set_memberships(connection, BOB.uid, ["b", "a", "a"])
    assert agents.projects_of(connection, BOB.uid) == ("a", "b")
    assert agents.members_of(connection, "a") == (BOB.uid,)
    agents.set_memberships(connection, BOB.uid, [])
    assert agents.members_of(connection, "a") == ()


QUESTION = MessageRow(1, "m", "a", "b", "", "{}", 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: pending.unaddressable(c, [1]),
        lambda c: pending.answered(c, [1]),
        lambda c: pending.expired(c, 1.0),
        lambda c: pending.next_expiry(c, 1.0),
        lambda c: pending.untaken(c, 1.0),
        lambda c: pending.next_untaken(c, 1.0),
        lambda c: pending.count_untaken(c, "a"),
        lambda c: messages.inbox(c, "a", unread=True, limit=5),
        lambda c: messages.unread_counts(c, ["a"]),
        lambda c: messages.chat(c, "a", "b", limit=5),
        lambda c: messages.first_answers(c, [QUESTION]),
        lambda c: messages.requeues(c, ["m"]),
        lambda c: records.attempts_of(c, ["m"]),
        lambda c: records.project_posts(c, "main", limit=5),
        lambda c: records.take_early_receipts(c, "a", "m"),
    ],
)
def test_a_question_that_is_asked_all_the_time_reads_no_table_from_end_to_end(
    connection: Connection, ask: Callable[[Connection], object]
):
    asked: list[tuple[str, tuple]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: tuple, *_: object) -> None:
        asked.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    ask(connection)
    event.remove(connection, "before_cursor_execute", note)
    for statement, parameters in asked:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        assert [row.detail for row in plan if row.detail.startswith("SCAN")] == []
