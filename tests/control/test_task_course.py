"""How people follow, cancel and answer tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom.errors import LostUpdate
from postroom.protocol.priority import Cancel, Input
from postroom.protocol.tasks import chain_headers
from postroom.store.ports import TaskRow
from postroom.tasks.chain import Chain
from postroom.tasks.records import TaskRecord, Weight
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import Known
from postroom_a2a.messages import text_of
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, Hand, TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def taken(room: TaskRoom, nick: str = "alice") -> tuple[Hand, str]:
    """A worker that works on a task; the worker and the task's id."""
    worker = await room.worker(nick)
    await worker.listen()
    task = (await room.delegate(f"@{nick}"))["id"]
    await worker.take(task)
    await worker.say(task, TaskState.WORKING, "begun", attempt=1)
    return worker, task


# ── wait ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("client-stream-resumes")
async def test_a_wait_ends_when_the_task_does_and_shows_what_was_made(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, task = await taken(room)

        async with asyncio.TaskGroup() as group:
            final = group.create_task(room.get(f"/{task}", wait="final", timeout=SECONDS))
            settled = group.create_task(room.get(f"/{task}", wait="settled", timeout=SECONDS))
            await alice.say(task, TaskState.INPUT_REQUIRED, "which?")
            asked = await settled
            await alice.say(task, TaskState.WORKING)
            await alice.make(task, "the result")
            await alice.say(task, TaskState.COMPLETED, "done")

        assert (asked["state"], asked["detail"]) == ("input-required", "which?")
        done = final.result()
        assert (done["state"], done["status_text"], done["final"]) == ("completed", "done", True)
        assert done["artifacts"] == [
            {"id": "a1", "name": "result", "text": "the result", "parts": [{"text": "the result"}]}
        ]
        assert "timed_out" not in done


async def test_a_wait_in_vain_shows_the_task_as_it_is(shared: TaskRoom):
    async with emptied(shared) as room:
        await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]

        view = await room.get(f"/{task}", wait="settled", timeout=0.05)

        assert (view["state"], view["timed_out"]) == ("submitted", True)


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_changes_are_shown_by_kind_and_page(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, task = await taken(room)
        await alice.make(task, "piece")
        await alice.say(task, TaskState.COMPLETED, "done")

        events = (await room.get(f"/{task}/events"))["events"]
        page = (await room.get(f"/{task}/events", after=events[0]["seq"], limit=2))["events"]

        said = [(e["kind"], e["state"], e["text"], e["attempt"], e["final"]) for e in events]
        assert said == [
            ("task", "submitted", "", 0, False),
            ("status", "working", "begun", 1, False),
            ("artifact", "working", "piece", 1, False),
            ("status", "completed", "done", 1, True),
        ]
        piece = {"id": "a1", "name": "result", "append": False, "last": True}
        assert [e["artifact"] for e in events] == [None, None, piece, None]
        assert {(e["task"], e["runner"]) for e in events} == {(task, alice.run)}
        assert page == events[1:3]


async def test_a_task_that_ends_with_its_first_record_says_why_in_its_only_change(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        await alice.refuse(task, "not mine")

        (event,) = (await room.get(f"/{task}/events"))["events"]

        assert (event["kind"], event["state"], event["text"]) == ("task", "rejected", "not mine")


async def stream(room: TaskRoom, task: str, after: int = 0) -> list[dict[str, Any]]:
    """Everything that the stream says until it ends by itself."""
    found = []
    path = f"/v1/tasks/{task}/stream?after={after}"
    async with asyncio.timeout(SECONDS), room.api.stream("GET", path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        number = name = ""
        async for line in answer.aiter_lines():
            field, _, value = line.partition(": ")
            match field:
                case "id":
                    number = value
                case "event":
                    name = value
                case "data":
                    found.append(json.loads(value))
                    assert (number, name) == (str(found[-1]["seq"]), "update")
    return found


@pytest.mark.requirement("client-stream-resumes")
async def test_a_stream_tells_each_change_and_ends_after_the_last(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, task = await taken(room)

        async with asyncio.TaskGroup() as group:
            live = group.create_task(stream(room, task))
            await alice.make(task, "piece")
            await alice.say(task, TaskState.COMPLETED, "done")
        events = (await room.get(f"/{task}/events"))["events"]
        again = await stream(room, task, events[1]["seq"])
        nothing = await stream(room, task, events[-1]["seq"])

        assert live.result() == events
        assert again == events[2:]
        assert nothing == []


@pytest.mark.requirement("client-stream-resumes")
@pytest.mark.parametrize("when", ["before", "behind"])
async def test_a_task_that_ends_around_a_read_of_its_stream_ends_the_stream(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch, when: str
):
    async with emptied(shared) as room:
        alice, task = await taken(room)
        read, said = OrgTaskService.course, asyncio.Event()

        async def around(self: OrgTaskService, *asked: Any) -> tuple[Known, list[Any]]:
            found = await read(self, *asked)
            if said.is_set():
                return found
            said.set()
            await alice.say(task, TaskState.COMPLETED, "done")
            return found if when == "behind" else await read(self, *asked)

        monkeypatch.setattr(OrgTaskService, "course", around)

        assert [event["text"] for event in await stream(room, task)] == ["", "begun", "done"]


# ── cancel ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-queue-keeps-order")
@pytest.mark.parametrize("was_taken", [False, True])
async def test_a_task_of_a_worker_that_is_offline_is_canceled_at_once(
    shared: TaskRoom, was_taken: bool
):
    async with emptied(shared) as room:
        alice = await room.worker("alice", start=was_taken)
        task = (await room.delegate("@alice"))["id"]
        if was_taken:
            await alice.take(task)
            await alice.say(task, TaskState.WORKING, attempt=1)
            alice.end()
        before = await room.row(task)

        view = await room.post(f"/{task}/cancel", reason="too late")
        again = await room.post(f"/{task}/cancel")

        assert (view["state"], view["final"]) == ("canceled", True)
        assert view["status_text"] == "canceled by @maria: too late"
        assert (await room.row(task)).runner == "postroom"
        assert again == view
        late = TaskRecord(json.loads(before.snapshot), before.request, before.requester)
        headers = chain_headers(alice.uid, task, before.seq)
        with pytest.raises(LostUpdate):
            await alice.bus.publish(late.subject(alice.uid), late.encode(), metadata=headers)


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_worker_that_works_on_a_task_is_told_and_ends_it_itself(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, task = await taken(room)

        async with asyncio.TaskGroup() as group:
            canceled = group.create_task(room.post(f"/{task}/cancel", reason="enough"))
            told = await alice.next()
            await alice.say(task, TaskState.CANCELED, "stopped")

        assert told == (room.owner.uid, Cancel(task, "enough"))
        assert (canceled.result()["state"], canceled.result()["detail"]) == ("canceled", "stopped")


async def test_a_cancel_that_the_worker_does_not_heed_in_time_shows_the_task_as_it_is(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        _, task = await taken(room)

        view = await room.post(f"/{task}/cancel", timeout=0.05)

        assert (view["state"], view["timed_out"]) == ("working", True)


async def test_a_task_that_its_running_worker_has_not_taken_never_begins(shared: TaskRoom):
    async with emptied(shared) as room:
        await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]

        view = await room.post(f"/{task}/cancel")

        assert (view["state"], view["seq"] > 0) == ("canceled", True)


class Overtaken(Chain):
    """A chain on which a worker is always a moment faster, once."""

    def __init__(self, chain: Chain, worker: Hand) -> None:
        self.__dict__ = dict(chain.__dict__)
        self.worker = worker
        self.overtaken = False

    async def append(self, row: TaskRow, record: TaskRecord, before: Weight | None = None) -> int:
        if not self.overtaken:
            self.overtaken = True
            await self.worker.take(row.id)
        return await super().append(row, record, before)


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_worker_that_takes_a_task_in_the_moment_of_its_cancel_is_told(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        await alice.listen()
        task = (await room.delegate("@alice"))["id"]
        room.parts.tasks._chain = Overtaken(room.parts.chain, alice)

        async with asyncio.TaskGroup() as group:
            canceled = group.create_task(room.post(f"/{task}/cancel"))
            _, told = await alice.next()
            await alice.say(task, TaskState.CANCELED)

        assert told == Cancel(task)
        assert canceled.result()["state"] == "canceled"


# ── answer ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-answer-resumes")
async def test_an_answer_reaches_the_worker_that_asked(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, task = await taken(room)
        await alice.say(task, TaskState.INPUT_REQUIRED, "A or B?")
        attention = (await room.api.get("/v1/status")).json()["attention"]

        view = await room.post(f"/{task}/answer", text="B")
        by, told = await alice.next()
        await alice.say(task, TaskState.WORKING)

        assert [(t["id"], t["detail"]) for t in attention] == [(task, "A or B?")]
        assert view["detail"] == "the answer is on its way to @alice"
        assert by == room.owner.uid
        assert isinstance(told, Input)
        assert (told.task, told.message["taskId"]) == (task, task)
        assert told.message["contextId"] == view["context"]
        assert (text_of(told.message), told.message["role"]) == ("B", "ROLE_USER")
        assert (await room.api.get("/v1/status")).json()["attention"] == []


@pytest.mark.requirement("task-answer-resumes")
async def test_of_two_answers_the_one_that_was_not_taken_is_refused(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, task = await taken(room)
        await alice.say(task, TaskState.INPUT_REQUIRED, "A or B?")

        async with asyncio.TaskGroup() as tasks:
            both = [
                tasks.create_task(room.post(f"/{task}/answer", text=text)) for text in ("A", "B")
            ]
            _, told = await alice.next()
            await alice.next()
            assert isinstance(told, Input)
            await alice.answered(task, told.message)

        views = [done.result() for done in both]
        assert sorted(str(view.get("code", "")) for view in views) == ["", "conflict"]
        (refused,) = [view for view in views if "code" in view]
        assert refused["detail"].startswith("somebody else has answered before")


WAITS = "@alice is stopped; {} waits for its start: postroom restart alice"


@pytest.mark.requirement("task-answer-resumes")
async def test_an_answer_to_a_worker_that_is_stopped_is_taken_at_once_and_waits_for_its_start(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        alice, task = await taken(room)
        await alice.say(task, TaskState.INPUT_REQUIRED, "A or B?")
        alice.end()
        asked = await room.get(f"/{task}")

        view = await room.post(f"/{task}/answer", text="B")
        again = await room.post(f"/{task}/answer", text="A")

        assert (asked["detail"], asked["status_text"]) == (WAITS.format("your answer"), "A or B?")
        assert (view["state"], view["detail"]) == ("working", WAITS.format("the answer"))
        assert (await room.api.get("/v1/status")).json()["attention"] == []
        assert again["code"] == "conflict"
        head = await room.row(task)
        assert (head.released, head.lost) == (True, 0)  # its next attempt counts no lost one
        assert alice.heard.empty()


@pytest.mark.requirement("task-retry")
async def test_an_answer_that_nobody_waits_for_is_refused(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, task = await taken(room)

        working = await room.post(f"/{task}/answer", text="B")
        await alice.say(task, TaskState.INPUT_REQUIRED, "A or B?")
        blank = await room.post(f"/{task}/answer", text=" ")
        large = await room.post(f"/{task}/answer", text="x" * 400_000)
        await alice.say(task, TaskState.FAILED)
        late = await room.post(f"/{task}/answer", text="B")

        codes = [answer["code"] for answer in (working, blank, large, late)]
        assert codes == ["conflict", "invalid-input", "message-too-large", "conflict"]
        assert alice.heard.empty()
