"""Tasks and their changes, as stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Store, create_engine, event

from postroom.protocol.limits import MAX_SHOWN_TEXT
from postroom.protocol.receipts import State
from postroom.protocol.tasks import task_id
from postroom.store import agents, messages, tasks
from postroom.store.agents import Agent
from postroom.store.messages import MessageRow
from postroom.store.schema import metadata
from postroom.store.tasks import TaskEventRow, TaskHead, TaskRow

MARIA, BOB, ANN = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture
def connection() -> Iterator[Store]:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.connect() as connected:
        for uid, nick, kind in (
            (MARIA, "maria", "human"),
            (BOB, "bob", "worker"),
            (ANN, "ann", "worker"),
        ):
            connected.agents.add_agent(Agent(uid, "default", nick, kind, 1.0), nick, b"secret")
        yield connected
    engine.dispose()


def asked(requested_seq: int, worker: str = BOB, requester: str = MARIA, **more: object) -> TaskRow:
    request = f"m{requested_seq}"
    row = TaskRow(
        id=task_id(worker, requester, request),
        worker=worker,
        requester=requester,
        request=request,
        requested_seq=requested_seq,
        context_id="c",
        text="do it",
        created_at=float(requested_seq),
        updated_at=float(requested_seq),
        snapshot="{}",
    )
    return replace(row, **more)


def store(store: Store, *rows: TaskRow) -> None:
    for row in rows:
        assert store.tasks.insert_task(row)


def sequences(found: list[TaskHead]) -> list[int]:
    return [task.requested_seq for task in found]


def test_a_task_is_read_as_it_was_stored_and_only_once_by_id_or_request(store: Store):
    row = asked(1)
    store(store, row)
    assert store.tasks.task_by_id(row.id) == row
    assert not store.tasks.insert_task(row)
    assert not store.tasks.insert_task(replace(row, id="f" * 32))
    assert store.tasks.task_by_id("f" * 32) is None


def test_a_change_leaves_alone_who_asked_whom_for_what(store: Store):
    row = asked(1)
    store(store, row, asked(2))
    changed = replace(
        row,
        state="working",
        seq=7,
        attempt=1,
        lost=1,
        runner="r",
        released=True,
        said="at it",
        snapshot='{"id":1}',
        snapshot_seq=7,
        weight=8,
        final=True,
        updated_at=9.0,
    )
    tasks.record_change(
        store,
        replace(changed, worker=ANN, requester=ANN, text="other", stream=True),
        TaskEventRow(7, row.id, BOB, "working", 1, "r", 9.0, ""),
        changed.snapshot,
    )
    assert store.tasks.task_by_id(row.id) == changed
    assert store.tasks.task_by_id(asked(2).id) == asked(2)


def test_changes_come_in_their_order_and_of_one_task(store: Store):
    rows = [
        TaskEventRow(seq, task, BOB, "working", 1, "r", 1.0, "{}")
        for seq, task in ((3, "t"), (1, "t"), (2, "other"), (4, "t"))
    ]
    for row in (*rows, rows[0]):
        tasks.record_change(store, asked(1), row)
    assert [row.seq for row in store.tasks.events_of("t")] == [1, 3, 4]
    assert [row.seq for row in store.tasks.events_of("t", after=1, limit=1)] == [3]
    assert store.tasks.events_at([2, 3, 9]) == [rows[2], rows[0]]


def test_a_beginning_of_an_id_finds_those_that_begin_with_it(store: Store):
    one, two = asked(1, id="abc" + "0" * 29), asked(2, id="abd" + "0" * 29)
    store(store, one, two)
    assert [task.id for task in store.tasks.tasks_by_prefix("abc")] == [one.id]
    assert len(store.tasks.tasks_by_prefix("ab")) == 2
    assert len(store.tasks.tasks_by_prefix("ab", limit=1)) == 1
    assert [task.id for task in store.tasks.tasks_by_prefix(two.id)] == [two.id]


def test_a_list_is_the_newest_first_and_can_be_narrowed(store: Store):
    store(
        store,
        asked(1),
        asked(2, worker=ANN, requester=BOB, state="working", seq=1),
        asked(3, state="completed", final=True, seq=2),
    )

    def found(**how: object) -> list[int]:
        return sequences(store.tasks.list_tasks(**({"limit": 9} | how)))  # ty: ignore[invalid-argument-type]

    assert found() == [3, 2, 1]
    assert found(limit=2) == [3, 2]
    assert found(before=3) == [2, 1]
    assert found(worker=BOB) == [3, 1]
    assert found(requester=BOB) == [2]
    assert found(states=("working", "completed")) == [3, 2]
    assert found(open_only=True) == [2, 1]
    assert found(open_only=False) == [3]


def test_what_a_worker_has_to_do_is_what_it_took_and_did_not_end(store: Store):
    store(
        store,
        asked(1),
        asked(2, state="working", seq=1),
        asked(3, state="completed", final=True, seq=2),
        asked(4, state="submitted", seq=3),
        asked(5, worker=ANN, state="submitted", seq=4),
    )
    assert sequences(store.tasks.open_tasks(BOB)) == [2, 4]
    assert sequences(store.tasks.open_tasks(BOB, after=2)) == [4]
    assert sequences(store.tasks.open_tasks(BOB, limit=1)) == [2]
    assert store.tasks.counts() == {BOB: 3, ANN: 1}


def test_what_a_worker_is_at_is_what_it_works_on_before_what_waits(store: Store):
    store(
        store,
        asked(1, state="input-required", seq=1),
        asked(2, state="working", seq=2),
        asked(3, worker=ANN, state="auth-required", seq=3),
        asked(4, worker=ANN, state="input-required", seq=4),
        asked(5, worker=MARIA),
    )
    at = store.tasks.current()
    assert {worker: task.requested_seq for worker, task in at.items()} == {BOB: 2, ANN: 3}
    assert sequences(store.tasks.interrupted()) == [1, 3, 4]


def test_the_questions_of_one_worker_do_not_crowd_out_those_of_others(store: Store):
    many = [asked(seq, state="input-required", seq=seq) for seq in range(1, 600)]
    store(store, *many, asked(600, worker=ANN, state="input-required", seq=600))
    assert sequences(store.tasks.interrupted()) == [*range(1, tasks.MAX_ASKING + 1), 600]


def test_lists_show_the_beginning_of_what_was_asked_for(store: Store):
    store(store, asked(1, state="input-required", seq=1, text="x" * 5000))
    for found in (
        store.tasks.list_tasks(limit=5),
        store.tasks.interrupted(),
        store.tasks.open_tasks(BOB),
        list(store.tasks.current().values()),
    ):
        assert [task.text for task in found] == ["x" * MAX_SHOWN_TEXT]


def test_tasks_whose_request_died_untaken_are_found_with_the_reason(store: Store):
    for seq in (1, 2, 3):
        message = MessageRow(seq, f"m{seq}", MARIA, BOB, "", "{}", 0.0, 0.0, 0.0)
        store.messages.insert_message(message)
    store(store, asked(1), asked(2), asked(3, seq=1))
    for seq in (1, 3):
        store.messages.set_state(seq, State.DEAD, final=True, reason="expired", at=1.0)
    assert store.tasks.undelivered_dead() == [(asked(1), "expired")]
    assert store.tasks.undelivered_dead(after=1) == []


def test_tasks_for_a_person_and_of_a_retired_worker_are_found(store: Store):
    store(
        store,
        asked(1, worker=MARIA, requester=BOB),
        asked(2, worker=ANN, seq=1, state="working"),
        asked(3, worker=ANN, seq=2, state="completed", final=True),
        asked(4, seq=3, state="working"),
    )
    store.agents.retire_agent(ANN, 2.0)
    assert sequences([*store.tasks.misdirected()]) == [1]
    assert sequences([*store.tasks.orphaned()]) == [2]
    assert store.tasks.orphaned(after=2) == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.tasks.task_by_id("t"),
        lambda store: store.tasks.tasks_by_prefix("abcdef"),
        lambda store: store.tasks.events_of("t"),
        lambda store: store.tasks.events_at([1, 2]),
        lambda store: store.tasks.list_tasks(worker=BOB, limit=5),
        lambda store: store.tasks.list_tasks(requester=BOB, limit=5),
        lambda store: store.tasks.open_tasks(BOB),
        tasks.interrupted,
        tasks.undelivered_dead,
    ],
)
def test_a_question_that_is_asked_all_the_time_reads_no_table_of_tasks_from_end_to_end(
    store: Store, ask: Callable[[Store], object]
):
    asked_sql: list[tuple[str, tuple]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: tuple, *_: object) -> None:
        asked_sql.append((statement, parameters))

    event.listen(store, "before_cursor_execute", note)
    ask(store)
    event.remove(store, "before_cursor_execute", note)
    for statement, parameters in asked_sql:
        plan = store.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        scanned = [row.detail for row in plan if row.detail.startswith("SCAN")]
        assert [each for each in scanned if "subquery" not in each and "anon" not in each] == []
