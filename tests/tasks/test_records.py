"""What a worker's log writes of a task, and what the fold makes of it; no server, no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from postroom.bus.port import Message as Record
from postroom.bus.port import Stored
from postroom.errors import MessageTooLarge, ProtocolViolation
from postroom.protocol.limits import MAX_TASK_BYTES
from postroom.store.schema import a2a_task_events, a2a_tasks
from postroom.tasks.log import StoredTask, TaskLog
from postroom.tasks.records import SNAPSHOT_RECORDS, STATUS_ROOM, Link, Weight
from postroom_a2a.messages import ROLE_USER, text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import (
    Event,
    Message,
    answer_update,
    apply,
    artifact_update,
    compose,
    status_update,
    text_artifact,
)
from tests.mail.log import BOB
from tests.tasks.log import FIRST, RUN, asked, fold_tasks, next_of, row_of, stored

pytestmark = pytest.mark.anyio

WORKING = next_of(FIRST, TaskState.WORKING)


class Nobody:
    """A `TaskSource` that is never asked."""

    async def get(self, task_id: str) -> NoReturn:
        raise AssertionError(f"asked for {task_id}")


class Paper:
    """A bus that keeps what is published."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Stored:
        sequence = len(self.records) + 1
        headers = dict(metadata or {})
        self.records.append(Record("", BOB, subject, payload, headers, 3000.0 + sequence, sequence))
        return Stored("TASKS", sequence)

    @property
    def size(self) -> int:
        return sum(len(record.payload) for record in self.records)

    @property
    def snapshots(self) -> list[int]:
        """The sequences of the records with a snapshot."""
        return [each.sequence for each in self.records if b',"task":' in each.payload]


class Writer:
    """A worker that writes one task."""

    def __init__(self, paper: Paper, before: StoredTask | None = None) -> None:
        self.paper = paper
        self.log = TaskLog(paper, Nobody(), worker=BOB, run=RUN)
        self.now = before or StoredTask(FIRST, 0)

    async def put(self, event: Event | None = None, answer: Message | None = None) -> None:
        record = self.now.record
        after = record if event is None else record.then(event, heard=answer)
        self.now = await self.log.append(after, self.now.sequence)

    async def begin(self) -> None:
        await self.put()
        await self.put(status_update(FIRST.task, TaskState.WORKING, 0.0))

    async def stream(self, text: str, *, id_: str = "result") -> None:
        piece = text_artifact(id_, text)
        await self.put(artifact_update(self.now.record.task, piece, append=True, last=False))

    async def say(self, state: TaskState, text: str = "") -> None:
        said = text_message("s", text) if text else None
        await self.put(status_update(self.now.record.task, state, 0.0, said))


TEXTS = st.text(max_size=40)
IDS = st.sampled_from(["a", "b", "c"])


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[Event, Message | None]]:
    """A course of one task that has begun."""
    course: list[tuple[Event, Message | None]] = []
    asking = False
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["progress", "piece", "piece", "artifact", "ask"]))
        text = draw(TEXTS)
        if asking:
            answer = text_message(f"a{number}", text, role=ROLE_USER)
            course.append((answer_update(FIRST.task, 1.0, answer), answer))
            asking = False
            continue
        said = text_message(f"s{number}", text) if draw(st.booleans()) else None
        match kind:
            case "progress":
                event = status_update(FIRST.task, TaskState.WORKING, 1.0, said)
            case "ask":
                event = status_update(FIRST.task, TaskState.INPUT_REQUIRED, 1.0, said)
                asking = True
            case _:
                piece = text_artifact(draw(IDS), text)
                event = artifact_update(FIRST.task, piece, append=kind == "piece", last=False)
        course.append((event, None))
    return course


@given(changes(), st.integers(0, 12))
def test_changes_composed_at_once_are_those_applied_one_by_one(
    course: list[tuple[Event, Message | None]], cut: int
):
    task = WORKING.task
    for event, answer in course:
        task = apply(task, event, answer=answer)
    before = json.dumps(WORKING.task)
    assert compose(WORKING.task, course) == task
    assert compose(compose(WORKING.task, course[:cut]), course[cut:]) == task
    assert json.dumps(WORKING.task) == before


@given(changes(), st.sets(st.integers(0, 12)))
async def test_what_is_folded_is_what_the_worker_has_whichever_records_hold_a_snapshot(
    course: list[tuple[Event, Message | None]], forgotten: set[int]
):
    paper = Paper()
    writer = Writer(paper)
    await writer.begin()
    for number, (event, answer) in enumerate(course):
        if number in forgotten:  # a new start of the worker, which knows no weight
            writer = Writer(paper, writer.now)
        await writer.put(event, answer)
        with asked() as rows:
            fold_tasks(rows.store, *paper.records)
            row = row_of(rows.store)
        assert row.seq == len(paper.records)
        assert json.loads(row.snapshot) == writer.now.record.task


@pytest.mark.requirement("task-stored-once")
async def test_what_is_stored_of_a_streaming_task_grows_with_what_it_says():
    async def streamed(pieces: int) -> tuple[int, int]:
        paper = Paper()
        writer = Writer(paper)
        await writer.begin()
        for number in range(pieces):
            await writer.stream(f"this is piece {number} of the answer. ")
        await writer.say(TaskState.COMPLETED, "done")
        with asked() as rows:
            fold_tasks(rows.store, *paper.records)
            row = row_of(rows.store)
            tables = rows.tables()
        assert (row.state, json.loads(row.snapshot)) == ("completed", writer.now.record.task)
        return paper.size, len(str(tables))

    (log, rows), (log_of_two, rows_of_two) = await streamed(1000), await streamed(2000)
    assert 1.8 < log_of_two / log < 2.3
    assert 1.8 < rows_of_two / rows < 2.3
    assert log < 1000 * 1200


@pytest.mark.requirement("task-stored-once")
async def test_a_snapshot_follows_64_records_and_is_there_at_the_end():
    paper = Paper()
    writer = Writer(paper)
    await writer.begin()
    for number in range(2 * SNAPSHOT_RECORDS):
        await writer.say(TaskState.WORKING, f"step {number}")
    await writer.say(TaskState.COMPLETED, "done")
    last = len(paper.records)
    assert paper.snapshots == [1, 1 + SNAPSHOT_RECORDS, 1 + 2 * SNAPSHOT_RECORDS, last]


async def test_a_snapshot_follows_64_kib_but_not_before_its_own_weight():
    paper = Paper()
    writer = Writer(paper)
    await writer.begin()
    for _ in range(20):
        await writer.stream("x" * 15_000)
    # Each after 5 pieces, until a task weighs more than twice as much as these.
    assert [after - before for before, after in pairwise(paper.snapshots)] == [6, 5, 10]


async def test_only_the_last_snapshot_of_a_task_is_kept_in_its_rows():
    paper = Paper()
    writer = Writer(paper)
    await writer.begin()
    for number in range(2 * SNAPSHOT_RECORDS):
        await writer.say(TaskState.WORKING, f"step {number}")
    with asked() as rows:
        fold_tasks(rows.store, *paper.records)
        (row,) = rows.store.session.rows(select(a2a_tasks.c.snapshot, a2a_tasks.c.snapshot_seq))
        found = select(a2a_task_events.c.seq).where(a2a_task_events.c.snapshot != "")
        kept = rows.store.session.column(found)
    assert tuple(row) == ("", 129)
    assert kept == [129]


async def test_a_full_task_goes_on_with_progress_and_takes_no_more_content():
    paper = Paper()
    writer = Writer(paper)
    await writer.begin()
    await writer.stream("x" * (MAX_TASK_BYTES - 3 * STATUS_ROOM))
    full = len(paper.snapshots)
    for number in range(20):
        await writer.say(TaskState.WORKING, f"step {number}")
    with pytest.raises(MessageTooLarge):
        await writer.stream("x" * 3 * STATUS_ROOM)
    await writer.say(TaskState.COMPLETED, "done")
    assert len(paper.snapshots) <= full + 1
    with asked() as rows:
        fold_tasks(rows.store, *paper.records)
        row = row_of(rows.store)
    assert (row.state, json.loads(row.snapshot)) == ("completed", writer.now.record.task)


# ── records of a worker that lies ──


def bare(change: Event | None, **more: Any) -> bytes:
    """A record without a snapshot."""
    head = {"v": 2, "request": "m", "requester": FIRST.requester, "attempt": 1, "lost": 0}
    return json.dumps(head | {"runner": RUN, "event": change} | more).encode()


PIECE = artifact_update(FIRST.task, text_artifact("a", "42"), append=True)
PROGRESS = status_update(FIRST.task, TaskState.WORKING, 1.0)


@pytest.mark.requirement("task-request-runs-once")
@pytest.mark.parametrize(
    "state, payload, follows",
    [
        pytest.param("completed", bare(PIECE), 2, id="an artifact that would end the task"),
        pytest.param(
            "completed",
            bare(status_update(FIRST.task, TaskState.COMPLETED, 1.0)),
            2,
            id="an end without a snapshot",
        ),
        pytest.param("working", bare(PROGRESS), 1, id="behind another record than the last"),
        pytest.param("working", bare(PROGRESS, answer="yes"), 2, id="an answer that is none"),
        pytest.param("working", bare({"task": FIRST.task}), 2, id="an event that is a task"),
        pytest.param("working", bare(PROGRESS, v=1), 2, id="version 1 without a snapshot"),
        pytest.param("working", bare(None), 2, id="nothing at all"),
        pytest.param(
            "working",
            bare(status_update(FIRST.task, TaskState.WORKING, 1.0) | {"more": 1}),
            2,
            id="two events",
        ),
        pytest.param(
            "working",
            bare({"statusUpdate": {**PROGRESS["statusUpdate"], "metadata": ["x"]}}),
            2,
            id="metadata that cannot be merged",
        ),
        pytest.param(
            "working",
            bare(artifact_update(FIRST.task, {"artifactId": "a", "parts": ["x"]})),
            2,
            id="parts that are none",
        ),
        pytest.param(
            "working",
            bare(artifact_update(FIRST.task, text_artifact("a", "x" * MAX_TASK_BYTES))),
            2,
            id="more than a task holds",
        ),
    ],
)
def test_a_change_that_does_not_apply_has_no_effect(state: str, payload: bytes, follows: int):
    with asked() as rows:
        fold_tasks(rows.store, stored(1, FIRST, 0), stored(2, WORKING, 1))
        before = rows.tables(without=["cursors"])
        (done,) = fold_tasks(rows.store, stored(3, payload, follows, state=state))
        assert rows.tables(without=["cursors"]) == before
        assert (done.changes, done.ignored) == ((), 1)


def test_a_task_cannot_begin_with_a_change():
    with asked() as rows:
        fold_tasks(rows.store, stored(1, bare(PROGRESS), 0, state="working"))
        assert row_of(rows.store).seq == 0


@pytest.mark.requirement("task-request-runs-once")
@pytest.mark.parametrize("kind", ["pieces", "progress", "questions"])
def test_a_worker_that_leaves_snapshots_out_makes_no_task_that_is_too_large(kind: str):
    text = text_message("s", "x" * 20_000)
    questions = [
        (TaskState.INPUT_REQUIRED, status_update(FIRST.task, TaskState.INPUT_REQUIRED, 1.0, text)),
        (TaskState.WORKING, status_update(FIRST.task, TaskState.WORKING, 1.0)),
    ]
    with asked() as rows:
        fold_tasks(rows.store, stored(1, FIRST, 0), stored(2, WORKING, 1))
        for seq in range(3, 100):
            state, more = TaskState.WORKING, {}
            match kind:
                case "pieces":
                    event = artifact_update(
                        FIRST.task, text_artifact("a", "x" * 20_000), append=True
                    )
                case "progress":
                    event = status_update(FIRST.task, state, 1.0, text)
                case _:
                    state, event = questions[(seq - 3) % 2]
                    more = {"answer": text} if state is TaskState.WORKING else {}
            payload = bare(event, **more)
            fold_tasks(rows.store, stored(seq, payload, seq - 1, state=state.value))
        row = row_of(rows.store)
    assert 3 < row.seq < 99
    assert len(row.snapshot.encode()) <= MAX_TASK_BYTES
    assert row.since <= MAX_TASK_BYTES


@given(changes())
def test_a_task_never_weighs_more_than_is_reckoned(course: list[tuple[Event, Message | None]]):
    record, weight = WORKING, WORKING.packed(None)[1]
    for event, answer in course:
        record = record.then(event, heard=answer)
        payload, weight = record.packed(weight)
        link = Link.decode(payload)
        size = len(json.dumps(record.task, separators=(",", ":"), ensure_ascii=False).encode())
        assert size <= weight.size + STATUS_ROOM
        assert (link.task is None) == (weight.records > 0)


def test_a_change_alone_is_no_record_of_a_task():
    with pytest.raises(ProtocolViolation):
        Link.decode(bare(PROGRESS)).after(None)


def test_who_reads_is_not_stricter_than_who_writes():
    full = Weight(MAX_TASK_BYTES - 2 * STATUS_ROOM)
    assert not full.due
    assert full.bounded
    assert replace(full, size=full.size + 1).due
