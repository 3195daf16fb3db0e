"""Tasks and their changes, as stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from postroom.protocol.limits import MAX_SHOWN_TEXT
from postroom.protocol.tasks import task_id
from postroom.store import tasks
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.ports import TaskEventRow, TaskHead, TaskRow
from tests.stores import scans

MARIA, BOB, ANN = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture
def store(empty_store: Store) -> Store:
    made = empty_store
    for uid, nick, kind in (
        (MARIA, "maria", "human"),
        (BOB, "bob", "worker"),
        (ANN, "ann", "worker"),
    ):
        made.agents.add_agent(Agent(uid, "default", nick, kind, 1.0), nick, b"secret")
    return made


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


def keep(store: Store, *rows: TaskRow) -> None:
    for row in rows:
        assert store.tasks.insert_task(row)


def sequences(found: list[TaskHead]) -> list[int]:
    return [task.requested_seq for task in found]


def test_a_task_is_read_as_it_was_stored_and_only_once_by_id_or_request(store: Store):
    row = asked(1)
    keep(store, row)
    assert store.tasks.task_by_id(row.id) == row
    assert not store.tasks.insert_task(row)
    assert not store.tasks.insert_task(replace(row, id="f" * 32))
    assert store.tasks.task_by_id("f" * 32) is None


def test_a_change_leaves_alone_who_asked_whom_for_what(store: Store):
    row = asked(1)
    keep(store, row, asked(2))
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
    store.tasks.record_change(
        replace(changed, worker=ANN, requester=ANN, text="other", stream=True),
        TaskEventRow(7, row.id, BOB, "working", 1, "r", 9.0, ""),
    )
    assert store.tasks.task_by_id(row.id) == changed
    assert store.tasks.task_by_id(asked(2).id) == asked(2)


def test_changes_come_in_their_order_and_of_one_task(store: Store):
    rows = [
        TaskEventRow(seq, task, BOB, "working", 1, "r", 1.0, "{}")
        for seq, task in ((3, "t"), (1, "t"), (2, "other"), (4, "t"))
    ]
    for row in (*rows, rows[0]):
        store.tasks.record_change(asked(1), row)
    assert [row.seq for row in store.tasks.events_of("t")] == [1, 3, 4]
    assert [row.seq for row in store.tasks.events_of("t", after=1, limit=1)] == [3]
    assert store.tasks.events_at([2, 3, 9]) == [rows[2], rows[0]]


def test_a_beginning_of_an_id_finds_those_that_begin_with_it(store: Store):
    one, two = asked(1, id="abc" + "0" * 29), asked(2, id="abd" + "0" * 29)
    keep(store, one, two)
    assert [task.id for task in store.tasks.tasks_by_prefix("abc")] == [one.id]
    assert len(store.tasks.tasks_by_prefix("ab")) == 2
    assert len(store.tasks.tasks_by_prefix("ab", limit=1)) == 1
    assert [task.id for task in store.tasks.tasks_by_prefix(two.id)] == [two.id]


def test_a_list_is_the_newest_first_and_can_be_narrowed(store: Store):
    keep(
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


def test_tasks_are_found_by_their_last_change_and_counted(store: Store):
    first, second, third, fourth = (
        asked(1, updated_at=9.0),
        asked(2, worker=ANN),
        asked(3, state="completed", final=True, context_id="d"),
        asked(4, updated_at=9.0),
    )
    keep(store, first, second, third, fourth)
    same = sorted((first.id, fourth.id), reverse=True)

    def found(**how: object) -> tuple[list[str], int]:
        places, total = store.tasks.updated(**({"limit": 9} | how))  # ty: ignore[invalid-argument-type]
        return [task for _, task in places], total

    assert found() == ([*same, third.id, second.id], 4)
    assert found(worker=BOB, limit=2) == (same, 3)
    assert found(worker=BOB, past=(9.0, same[0])) == ([same[1], third.id], 3)
    assert found(worker=BOB, past=(3.0, third.id)) == ([], 3)
    assert found(requester=ANN) == ([], 0)
    assert found(context="d") == ([third.id], 1)
    assert found(state="submitted") == ([*same, second.id], 3)
    assert found(since=3.0) == ([*same, third.id], 3)


def test_what_a_worker_has_to_do_is_what_it_took_and_did_not_end(store: Store):
    keep(
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
    keep(
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
    keep(store, *many, asked(600, worker=ANN, state="input-required", seq=600))
    assert sequences(store.tasks.interrupted()) == [*range(1, tasks.MAX_ASKING + 1), 600]


def test_lists_show_the_beginning_of_what_was_asked_for(store: Store):
    keep(store, asked(1, state="input-required", seq=1, text="x" * 5000))
    for found in (
        store.tasks.list_tasks(limit=5),
        store.tasks.interrupted(),
        store.tasks.open_tasks(BOB),
        list(store.tasks.current().values()),
    ):
        assert [task.text for task in found] == ["x" * MAX_SHOWN_TEXT]


def test_untaken_tasks_are_found_in_the_order_of_their_requests(store: Store):
    keep(store, asked(1), asked(2), asked(3, seq=1), asked(4, final=True))
    assert store.tasks.untaken_tasks() == [asked(1), asked(2)]
    assert store.tasks.untaken_tasks(after=1) == [asked(2)]


def test_open_tasks_of_a_worker_are_those_it_has_taken(store: Store):
    keep(
        store,
        asked(1, worker=ANN),
        asked(2, worker=ANN, seq=1, state="working"),
        asked(3, worker=ANN, seq=2, state="completed", final=True),
        asked(4, seq=3, state="working"),
    )
    assert sequences([*store.tasks.open_of(ANN)]) == [2]
    assert store.tasks.open_of(ANN, after=2) == []
    assert {head.requested_seq for head in store.tasks.heads_by_requests([2, 4, 9])} == {2, 4}


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.tasks.task_by_id("t"),
        lambda store: store.tasks.tasks_by_prefix("abcdef"),
        lambda store: store.tasks.events_of("t"),
        lambda store: store.tasks.events_at([1, 2]),
        lambda store: store.tasks.list_tasks(worker=BOB, limit=5),
        lambda store: store.tasks.list_tasks(requester=BOB, limit=5),
        lambda store: store.tasks.updated(worker=BOB, limit=5),
        lambda store: store.tasks.updated(requester=BOB, limit=5),
        lambda store: store.tasks.open_tasks(BOB),
        lambda store: store.tasks.interrupted(),
        lambda store: store.tasks.silent([BOB], 1.0),
        lambda store: store.tasks.untaken_tasks(),
    ],
)
def test_a_question_that_is_asked_all_the_time_reads_no_table_of_tasks_from_end_to_end(
    store: Store, ask: Callable[[Store], object]
):
    assert scans(store, ask) == []
