"""The rules by which tasks become rows, as tables and properties; no bus."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.bus.port import Message
from postroom.protocol.envelope import TaskRequest
from postroom.protocol.tasks import chain, task_id
from postroom.tasks.records import MAX_TASK_BYTES
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState, allowed
from tests.mail.log import ALICE, BOB, EVE, Rows, envelope, inbox
from tests.tasks.log import (
    FIRST,
    RUN,
    TASK,
    asked,
    fold_all,
    fold_tasks,
    hostile,
    next_of,
    request,
    row_of,
    stored,
    with_task,
)

WORKING = next_of(FIRST, TaskState.WORKING, "at it")
RESULT = next_of(WORKING, TaskState.WORKING, artifact="42")
DONE = next_of(RESULT, TaskState.COMPLETED, "done")


@pytest.mark.requirement("task-request-runs-once")
def test_a_request_makes_a_task_that_nobody_has_taken():
    with Rows() as rows:
        asks = TaskRequest("sum", stream=True)
        (done,) = fold_all(rows.store, request(1, request=asks))
        row = row_of(rows.store)
    assert (row.worker, row.requester, row.request, row.requested_seq) == (BOB, ALICE, "m", 1)
    assert (row.state, row.seq, row.final, row.skill, row.stream) == (
        "submitted",
        0,
        False,
        "sum",
        True,
    )
    assert (row.text, row.context_id, row.created_at) == ("text of m", TASK, 1001.0)
    assert json.loads(row.snapshot) == FIRST.task
    assert [(change.kind, change.seq, change.id) for change in done.changes] == [
        ("mail", 1, "m"),
        ("task", 0, TASK),
    ]


def test_an_id_that_its_sender_uses_toward_another_worker_makes_a_task_that_is_seen_too():
    with Rows() as rows:
        asks = envelope("m", request=TaskRequest())
        fold_all(rows.store, inbox(1, asks))
        fold_all(rows.store, inbox(2, replace(asks, to=EVE), to=EVE))
        fold_all(rows.store, inbox(3, asks))
        found = rows.store.tasks.list_tasks(limit=10)
    assert [(row.worker, row.requested_seq) for row in found] == [(EVE, 2), (BOB, 1)]


def test_a_context_of_the_message_is_the_tasks():
    with Rows() as rows:
        message = text_message("m", "x", context_id="talk")
        asks = replace(envelope("m", request=TaskRequest()), message=message)
        fold_all(rows.store, inbox(1, asks))
        assert row_of(rows.store).context_id == "talk"


@pytest.mark.parametrize(
    "record",
    [
        inbox(1, envelope("m")),
        inbox(1, b'{"request":'),
        inbox(1, envelope("m", to=EVE, request=TaskRequest())),
        inbox(1, envelope("m", to="nobody", request=TaskRequest()), to="nobody"),
        inbox(1, envelope("m", request=TaskRequest()).encode().replace(b"SendMessage", b"Other")),
    ],
)
def test_what_asks_for_no_task_makes_none(record: tuple[str, Message]):
    with Rows() as rows:
        fold_all(rows.store, record)
        assert rows.store.tasks.list_tasks(limit=9) == []


def test_the_same_request_again_makes_no_second_task():
    with asked() as rows:
        fold_all(rows.store, request(2))
        assert [task.id for task in rows.store.tasks.list_tasks(limit=9)] == [TASK]


def test_a_chain_of_records_is_followed_and_each_is_kept():
    with asked() as rows:
        folded = fold_tasks(
            rows.store,
            stored(1, FIRST, 0),
            stored(3, WORKING, 1),
            stored(4, RESULT, 3),
            stored(9, DONE, 4),
        )
        row = row_of(rows.store)
        events = rows.store.tasks.events_of(TASK)
    assert [change.state for done in folded for change in done.changes] == [
        "submitted",
        "working",
        "working",
        "completed",
    ]
    assert (row.seq, row.state, row.final, row.attempt, row.runner, row.said) == (
        9,
        "completed",
        True,
        1,
        RUN,
        "done",
    )
    assert json.loads(row.snapshot) == DONE.task
    assert [(event.seq, event.state) for event in events] == [
        (1, "submitted"),
        (3, "working"),
        (4, "working"),
        (9, "completed"),
    ]
    assert [event.event and json.loads(event.event) for event in events] == [
        "",
        WORKING.event,
        RESULT.event,
        DONE.event,
    ]


@pytest.mark.requirement("task-request-runs-once")
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(stored(2, WORKING, 1, headers={}), id="without the headers of the chain"),
        pytest.param(stored(2, WORKING, 0), id="behind another record than the last"),
        pytest.param(
            stored(
                2,
                WORKING,
                1,
                headers={
                    "Nats-Expected-Last-Subject-Sequence": "1",
                    "Nats-Expected-Last-Subject-Sequence-Subject": chain(BOB, TASK)[:-1] + "x",
                },
            ),
            id="compared with other subjects",
        ),
        pytest.param(stored(2, WORKING, 1, worker=EVE), id="of another worker"),
        pytest.param(stored(2, WORKING, 1, task="0" * 32), id="of a task that nobody asked for"),
        pytest.param(stored(2, WORKING, 1, task="x"), id="of no task at all"),
        pytest.param(stored(2, WORKING, 1, state="failed"), id="the subject says another state"),
        pytest.param(stored(2, WORKING, 1, state="dancing"), id="the subject says no state"),
        pytest.param(stored(2, b"junk", 1), id="junk"),
        pytest.param(stored(2, b"[" * 100_000, 1), id="nested without end"),
        pytest.param(stored(2, FIRST, 1), id="a state that may not follow"),
        pytest.param(
            stored(2, replace(WORKING, requester=EVE), 1), id="names another who asked for it"
        ),
        pytest.param(stored(2, replace(WORKING, request="n"), 1), id="names another request"),
        pytest.param(stored(2, with_task(WORKING, id="0" * 32), 1), id="is about another task"),
        pytest.param(
            stored(2, hostile(WORKING, task={**WORKING.task, "x": "x" * MAX_TASK_BYTES}), 1),
            id="too large",
        ),
        pytest.param(stored(2, hostile(WORKING, event={"artifactUpdate": 5}), 1), id="no event"),
        pytest.param(stored(2, hostile(WORKING, event=DONE.event), 1), id="event of another state"),
        pytest.param(
            stored(2, hostile(WORKING, event={**(WORKING.event or {}), "task": {}}), 1),
            id="two events",
        ),
    ],
)
def test_a_record_that_is_not_the_next_link_has_no_effect(record: Message):
    with asked() as rows:
        fold_tasks(rows.store, stored(1, FIRST, 0))
        before = rows.tables(without=["cursors"])
        (done,) = fold_tasks(rows.store, record)
        assert rows.tables(without=["cursors"]) == before
        assert (done.changes, done.ignored) == ((), 1)


def test_the_first_record_is_one_that_may_begin_a_task():
    with asked() as rows:
        fold_tasks(rows.store, stored(1, DONE, 0))
        assert row_of(rows.store).seq == 0


def test_a_task_may_be_begun_by_its_first_record():
    with asked() as rows:
        fold_tasks(rows.store, stored(1, replace(WORKING, event=None), 0))
        row = row_of(rows.store)
        assert (row.seq, row.state, row.attempt, row.said) == (1, "working", 1, "at it")


JUNK = st.one_of(st.binary(max_size=30), st.just(b"{}"), st.just(b'{"v":1,"task":{}}'))
STATES = st.sampled_from(list(TaskState))


@st.composite
def tasks_logs(draw: st.DrawFn) -> tuple[list[Message], list[Message]]:
    """What a worker stored of one task, and those records of it that are links of the chain."""
    everything: list[Message] = []
    links: list[Message] = []
    state: TaskState | None = None
    last, before = 0, FIRST
    for seq in range(1, draw(st.integers(1, 14)) + 1):
        kind = draw(st.sampled_from(["link", "link", "state", "old", "bare", "junk", "stranger"]))
        after = draw(STATES)
        record = FIRST if state is None else next_of(before, after, draw(st.text(max_size=5)))
        if state is None and after is not TaskState.SUBMITTED:
            record = replace(next_of(FIRST, after), event=None)
        message = stored(seq, record, last)
        follows = allowed(state, after) and not (state is not None and state.terminal)
        match kind:
            case "old":
                message, follows = stored(seq, record, last + draw(st.integers(1, 3))), False
            case "bare":
                message, follows = stored(seq, record, last, headers={}), False
            case "junk":
                message, follows = stored(seq, draw(JUNK), last, state=after.value), False
            case "stranger":
                message, follows = stored(seq, record, last, worker=EVE), False
        everything.append(message)
        if follows:
            links.append(message)
            state, last, before = after, seq, record
    return everything, links


@pytest.mark.requirement("task-request-runs-once")
@given(tasks_logs())
def test_whatever_a_worker_stores_counts_as_far_as_it_is_the_chain(
    log: tuple[list[Message], list[Message]],
):
    everything, links = log
    with asked() as all_rows:
        fold_tasks(all_rows.store, *everything)
        of_all = all_rows.tables(without=["cursors"])
        row = row_of(all_rows.store)
    with asked() as link_rows:
        fold_tasks(link_rows.store, *links)
        of_links = link_rows.tables(without=["cursors"])
    assert of_all == of_links
    assert row.seq == (links[-1].sequence if links else 0)
    states = [TaskState(link.subject.rsplit(".", 1)[1]) for link in links]
    assert not any(state.terminal for state in states[:-1])


@pytest.mark.requirement("task-request-runs-once")
@given(tasks_logs())
def test_records_that_come_twice_and_other_tasks_between_change_nothing(
    log: tuple[list[Message], list[Message]],
):
    everything, _ = log
    other = task_id(BOB, ALICE, "n")
    with asked() as rows:
        fold_all(rows.store, request(2, "n"))
        first = with_task(replace(FIRST, request="n"), id=other)
        mixed: list[Message] = []
        for message in everything:
            mixed += [message, message]
        fold_tasks(rows.store, *mixed, stored(99, first, 0, task=other))
        of_mixed = row_of(rows.store)
        assert row_of(rows.store, other).seq == 99
    with asked() as rows:
        fold_tasks(rows.store, *everything)
        assert row_of(rows.store) == of_mixed


@given(st.binary(max_size=300), st.sampled_from(["submitted", "working", "x", "a.b", ""]))
def test_no_record_makes_the_rule_raise(body: bytes, state: str):
    with asked() as rows:
        message = stored(1, body, 0, state=state)
        fold_tasks(rows.store, message, replace(message, sequence=2, subject="worker.x"))
        fold_all(rows.store, ("INBOX", replace(message, subject=f"worker.{BOB}.inbox.{EVE}")))
        assert row_of(rows.store).seq == 0
