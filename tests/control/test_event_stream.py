"""What is told to those who wait for a task, and to those who watch everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from postroom.feed.records import watch_bus
from postroom.projection.changes import Change
from postroom_a2a.task_state import TaskState
from tests.control.doing import REQUEST, Doing
from tests.control.taskroom import SECONDS, TaskRoom, task_room

pytestmark = pytest.mark.anyio


class Told:
    """What a stream of events says, one after the other; `after` is where to come back."""

    def __init__(self, lines: AsyncGenerator[str]) -> None:
        self._lines = lines
        self.after = ""

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of these kinds, or of any."""
        kind, found = "", {}
        async with asyncio.timeout(SECONDS):
            async for line in self._lines:
                if line.startswith("id: "):
                    self.after = line[4:]
                if line.startswith("event: "):
                    kind = line[7:]
                if line.startswith("data: "):
                    found = {"kind": kind, "record": json.loads(line[6:])}
                if not line and found and (not kinds or kind in kinds):
                    return found
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def listening(room: TaskRoom, path: str) -> AsyncGenerator[Told]:
    async with room.api.stream("GET", path) as answer:
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        yield Told(lines)  # ty: ignore[invalid-argument-type]


def hinder(room: TaskRoom, uid: str, why: str) -> None:
    room.blocked[uid] = why
    room.parts.changes.publish([Change("worker", 0)])


# ── who waits for a task ─────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("client-stream-resumes")
async def test_who_follows_a_task_is_told_that_its_worker_has_failed_and_that_it_works_again(
    tmp_path: Path,
):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        async with listening(room, f"/v1/tasks/{task}/stream") as told:
            await alice.take(task)
            await told.next("update")
            hinder(room, alice.uid, "has failed (exit code 3)")
            failed = (await told.next("trouble"))["record"]
            hinder(room, alice.uid, "")
            healed = (await told.next("trouble"))["record"]
        assert failed["text"] == "@alice has failed (exit code 3): it waits"
        assert (failed["task"], failed["worker"]) == (task, "alice")
        assert (healed["text"], healed["worker"]) == ("", "")


@pytest.mark.requirement("client-stream-resumes")
async def test_what_keeps_a_task_already_is_told_first(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        room.blocked[alice.uid] = "is stalled"
        async with listening(room, f"/v1/tasks/{task}/stream") as told:
            assert (await told.next())["record"]["text"] == "@alice is stalled: it waits"


async def test_a_task_that_has_ended_is_kept_by_nothing(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        await alice.take(task)
        await alice.say(task, TaskState.WORKING)
        await alice.say(task, TaskState.COMPLETED, "done")
        alice.end()
        async with listening(room, f"/v1/tasks/{task}/stream") as told:
            assert {(await told.next())["kind"] for _ in range(3)} == {"update"}


@pytest.mark.requirement("client-stream-resumes")
async def test_who_follows_a_task_is_told_that_the_bus_is_away_and_that_it_is_back(tmp_path: Path):
    async with task_room(tmp_path) as room:
        await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        watching = asyncio.create_task(watch_bus(room.parts.bus, room.parts.changes))
        async with listening(room, f"/v1/tasks/{task}/stream") as told:
            await room.rig.stop(kill=True)
            away = (await told.next("trouble"))["record"]["text"]
            await room.rig.start()
            back = (await told.next("trouble"))["record"]["text"]
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    assert (away, back) == ("the bus does not answer: it goes on when the bus is back", "")


# ── who watches everything ───────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("client-stream-resumes")
async def test_everything_that_happens_is_told_as_it_happens(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        office = room.parts.office
        async with listening(room, "/v1/events") as told:
            await told.next("open")
            await office.send(alice.uid, "@maria", "for you")
            mail = (await told.next("mail"))["record"]
            task = (await room.delegate("@alice", "look at it"))["id"]
            asked = (await told.next("task"))["record"]
            await alice.take(task)
            await alice.say(task, TaskState.WORKING, "step 1")
            await told.next("update")
            update = (await told.next("update"))["record"]
            await office.post(alice.uid, "main", "to all")
            post = (await told.next("post"))["record"]
            await alice.online()
            room.parts.changes.publish([Change("worker", 0)])
            worker = (await told.next("worker"))["record"]
        assert (mail["from"]["nick"], mail["text"]) == ("alice", "for you")
        assert (asked["id"], asked["text"], asked["worker"]["nick"]) == (
            task,
            "look at it",
            "alice",
        )
        assert (update["task"], update["text"], update["state"]) == (task, "step 1", "working")
        assert (update["worker"]["nick"], update["request_text"]) == ("alice", "look at it")
        assert (post["project"], post["text"]) == ("main", "to all")
        assert (worker["nick"], worker["state"]) == ("alice", "idle")


@pytest.mark.requirement("client-stream-resumes")
async def test_who_comes_back_is_told_what_happened_meanwhile_and_nothing_twice(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        office = room.parts.office
        await office.post(alice.uid, "main", "before")
        async with listening(room, "/v1/events") as told:
            await told.next("open")
            await office.post(alice.uid, "main", "one")
            assert (await told.next("post"))["record"]["text"] == "one"
            after = told.after
        await office.post(alice.uid, "other", "two")
        await office.send(alice.uid, "@maria", "three")
        await office.send(alice.uid, "@alice", "not for maria")
        task = (await room.delegate("@alice", "four"))["id"]
        await alice.take(task)
        async with listening(room, f"/v1/events?after={after}") as told:
            await told.next("open")
            texts = [(await told.next("mail", "post", "task"))["record"]["text"] for _ in range(3)]
        assert sorted(texts) == ["four", "three", "two"]


@pytest.mark.requirement("client-stream-resumes")
async def test_who_comes_back_is_told_of_each_approval_once_and_of_its_end(tmp_path: Path):
    async with task_room(tmp_path) as room:
        coder = Doing(room, await room.worker("coder"), tmp_path)
        async with listening(room, "/v1/events") as told:
            await told.next("open")
            await coder.asks(REQUEST)
            assert (await told.next("approval"))["record"]["state"] == "pending"
            after = told.after
        await coder.asks("ab12cd34ab12cd31")
        answer = {"type": "control_response", "id": REQUEST, "decision": "denied"}
        await room.api.post(f"/v1/workers/{coder.uid}/control", json=answer)
        await coder.decided()
        found = []
        async with listening(room, f"/v1/events?after={after}") as told:
            await told.next("open")
            for _ in range(2):
                record = (await told.next("approval"))["record"]
                found.append((record["id"], record["state"]))
            after = told.after
        assert sorted(found) == sorted([("ab12cd34ab12cd31", "pending"), (REQUEST, "denied")])
        async with listening(room, f"/v1/events?after={after}") as told:
            await told.next("open")
            await coder.asks("ab12cd34ab12cd32")
            assert (await told.next("approval"))["record"]["id"] == "ab12cd34ab12cd32"


async def test_a_cursor_that_is_none_is_refused(tmp_path: Path):
    async with task_room(tmp_path) as room:
        for wrong in ("1", "a-b-c-d", "1-2-3-", "1-2-3-4-5-6", "9" * 19 + "-1-1-1"):
            answer = await room.api.get("/v1/events", params={"after": wrong})
            assert answer.status_code == 422


async def test_an_approval_is_told_when_it_is_asked_for_and_when_it_is_settled(tmp_path: Path):
    async with task_room(tmp_path) as room:
        coder = Doing(room, await room.worker("coder"), tmp_path)
        async with listening(room, "/v1/events") as told:
            await told.next("open")
            await coder.asks()
            asked = (await told.next("approval"))["record"]
            after = told.after
            await coder.decide("denied")
            settled = (await told.next("approval"))["record"]
        assert (asked["id"], asked["state"], asked["worker"]["nick"]) == (
            REQUEST,
            "pending",
            "coder",
        )
        assert (settled["id"], settled["state"]) == (REQUEST, "denied")
        assert settled["answer"]["by"]["nick"] == "maria"
        async with listening(room, f"/v1/events?after={after}") as told:
            assert (await told.next("approval"))["record"]["state"] == "denied"


async def test_what_a_policy_allows_is_told_to_nobody(tmp_path: Path):
    async with task_room(tmp_path) as room:
        coder = Doing(room, await room.worker("coder"), tmp_path)
        async with listening(room, "/v1/events") as told:
            await told.next("open")
            await coder.asks("ab12cd34ab12cd30")
            await told.next("approval")
            said = {"type": "control_response", "request": "ab12cd34ab12cd31"}
            asks = {"type": "control_request", "request": "ab12cd34ab12cd31", "kind": "tool"}
            decided = {**said, "decision": "allowed", "channel": "policy"}
            await coder.report({**asks, "tool": "Read", "title": "", "input": {}}, decided)
            await coder.asks("ab12cd34ab12cd32")
            assert (await told.next("approval"))["record"]["id"] == "ab12cd34ab12cd32"


async def test_what_the_status_counts_is_told_as_it_changes_and_so_is_a_worker_that_is_removed(
    tmp_path: Path,
):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        async with listening(room, "/v1/events") as told:
            await told.next("open")
            sent = await room.parts.office.send(alice.uid, "@maria", "for you")
            assert (await told.next("room"))["record"]["inbox"] == 1
            await room.api.post(f"/v1/messages/{sent.id}/seen")
            assert (await told.next("room"))["record"]["inbox"] == 0
            await room.parts.workers.remove(alice.uid)
            gone = (await told.next("worker"))["record"]
            assert (gone["nick"], gone["state"]) == ("alice", "removed")
