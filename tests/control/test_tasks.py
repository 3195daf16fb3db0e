"""Tasks that a person gives to workers, over the HTTP API and the records of a worker that a test drives by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.presence import WorkerState
from postroom.protocol.streams import BY_NAME
from postroom.protocol.tasks import task_id
from postroom.tasks.requests import request_key
from postroom.workers.status import blocker
from postroom_a2a.messages import text_of
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def test_a_task_can_be_canceled_while_the_priority_lane_is_full(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        await alice.take(task)
        await alice.say(task, TaskState.WORKING, attempt=1)
        await room.rig.admin.ensure_stream(replace(BY_NAME["PRIORITY"], max_messages=1))
        await room.rig.core.publish(subjects.priority(alice.uid, "postroom"), b"full")

        ended = await room.post(f"/{task}/cancel")

        assert (ended["state"], ended["final"]) == ("canceled", True)


@pytest.mark.requirement("task-request-runs-once")
async def test_a_task_for_a_worker_that_is_offline_is_stored_and_waits(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice", "write", start=False)

        view = await room.delegate("@alice", "write it", skill="write", context="c1")

        stored = await room.rig.admin.get("INBOX", view["requested"])
        envelope = Envelope.decode(stored.payload)
        assert stored.subject == f"worker.{alice.uid}.inbox.{room.owner.uid}"
        assert (envelope.expects_reply, text_of(envelope.message)) == (True, "write it")
        assert envelope.request is not None
        assert envelope.request.skill == "write"
        assert view["id"] == task_id(alice.uid, room.owner.uid, envelope.id)
        shown = {name: view[name] for name in ("seq", "state", "final", "detail", "context")}
        assert shown == {
            "seq": 0,
            "state": "submitted",
            "final": False,
            "detail": "@alice is offline: it waits",
            "context": "c1",
        }
        assert view["worker"] == {"uid": alice.uid, "nick": "alice", "kind": "worker"}
        assert view["requester"]["nick"] == "maria"
        shown = await room.get(f"/{view['id'][:6]}")
        assert shown.pop("usage") == {"input_tokens": 0, "output_tokens": 0, "cost": 0.0}
        assert shown == view


async def test_the_detail_says_how_a_task_stands(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        one, two = await room.delegate("@alice", "one"), await room.delegate("@alice", "two")

        async def detail(view: dict[str, Any]) -> str:
            return (await room.get(f"/{view['id']}"))["detail"]

        assert await detail(one) == "queued for @alice"
        await alice.take(one["id"])
        await alice.take(two["id"])
        assert [await detail(one), await detail(two)] == ["next", "waits behind 1 other"]
        await alice.say(one["id"], TaskState.WORKING, attempt=1)
        assert await detail(one) == ""
        await alice.say(one["id"], TaskState.WORKING, attempt=2)
        assert [await detail(one), await detail(two)] == ["attempt 2", "waits behind 1 other"]
        await alice.say(one["id"], TaskState.INPUT_REQUIRED, "which one?\nA or B")
        assert [await detail(one), await detail(two)] == ["which one? A or B", "next"]
        await alice.say(one["id"], TaskState.FAILED, "no idea\nat all")
        assert await detail(one) == "no idea"
        room.blocked[alice.uid] = "has failed (exit code 1)"
        assert await detail(two) == "@alice has failed (exit code 1): it waits"
        room.blocked[alice.uid] = ": the model failed (429)"
        assert await detail(two) == "@alice: the model failed (429)"
        room.blocked.clear()
        alice.end()
        assert await detail(two) == "@alice is offline: it waits"


async def test_a_cancel_needs_no_body(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice", start=False)
        view = await room.delegate("@alice", "one")

        answer = await room.api.post(f"/v1/tasks/{view['id']}/cancel")

        assert (answer.status_code, answer.json()["state"]) == (200, "canceled")
        assert alice.uid == answer.json()["worker"]["uid"]


@pytest.mark.parametrize(
    "state, detail, said",
    [
        (WorkerState.FAILED, "exit code 1", "has failed (exit code 1)"),
        (WorkerState.EXITED, "", "has ended"),
        (
            WorkerState.STALLED,
            "it does not read its input",
            "is stalled (it does not read its input)",
        ),
        (WorkerState.WORKING, "reading", ""),
        (WorkerState.IDLE, "", ""),
    ],
)
def test_what_keeps_an_agent_from_its_tasks_is_what_its_worker_says(
    state: WorkerState, detail: str, said: str
):
    assert blocker(state, detail) == said


@pytest.mark.requirement("task-skill-chosen")
async def test_a_task_for_a_skill_goes_to_who_is_online_and_has_the_least_to_do(shared: TaskRoom):
    async with emptied(shared) as room:
        await room.worker("aaron", "write", start=False)
        zoe, bob = await room.worker("zoe", "write"), await room.worker("bob", "write")
        await room.worker("carl", "writer")
        await zoe.online()
        await bob.online()

        chosen = [(await room.post("", skill="write", text="x"))["worker"]["nick"] for _ in "123"]
        zoe.end()
        bob.end()
        offline = await room.post("", skill="write", text="x")

        assert chosen == ["bob", "zoe", "bob"]
        assert offline["worker"]["nick"] == "aaron"


@pytest.mark.requirement("task-request-runs-once")
async def test_an_agent_is_given_another_that_has_the_skill_and_works_and_again_for_its_key(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        bob, zoe = await room.worker("bob", "write"), await room.worker("zoe", "write")
        yan = await room.worker("yan", "write")
        for worker in (bob, zoe, yan):
            await worker.online()
        room.blocked[zoe.uid] = "has failed"

        first = await bob.ask("choose", skill="write", key="k")
        await room.post("", to="@yan", text="now it has more to do than zoe")
        again = await bob.ask("choose", skill="write", key="k")
        nobody = await bob.ask("choose", skill="fly", key="k2")

        assert (first["nick"], again) == ("yan", first)
        assert nobody["error"]["code"] == "not-found"


@pytest.mark.requirement("task-request-runs-once")
async def test_the_same_key_is_the_same_task_also_when_another_worker_has_less_to_do(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        await room.worker("alice", "write")
        await room.worker("bob", "write")
        await room.api.post("/v1/messages", json={"to": "@alice", "text": "x", "key": "k"})

        first = await room.post("", skill="write", text="x", key="k")
        again = await room.post("", skill="write", text="x", key="k")
        named = await room.delegate("@alice", "x", key="k")
        other = await room.post("", skill="write", text="x", key="k2")

        assert [first["worker"]["nick"], other["worker"]["nick"]] == ["alice", "bob"]
        assert first["id"] == again["id"] == named["id"]


async def test_a_key_is_known_after_a_restart(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        view = await room.delegate("@bob", key="k")

        requests = room.parts.tasks._requests
        key = request_key("k")
        found = await requests.given(room.owner.uid, key, [alice.uid, bob.uid])
        nobody = await requests.given(room.owner.uid, key, [alice.uid])

        assert (found, nobody) == (view["worker"]["uid"], "")


@pytest.mark.requirement("task-retry")
async def test_what_cannot_be_delegated_is_refused_with_a_problem(shared: TaskRoom):
    bodies: list[tuple[dict[str, str], str]] = [
        ({"to": "@maria", "text": "x"}, "invalid-input"),
        ({"to": "@nobody", "text": "x"}, "unknown-recipient"),
        ({"skill": "fly", "text": "x"}, "not-found"),
        ({"text": "x"}, "invalid-input"),
        ({"to": "@alice", "text": " "}, "invalid-input"),
        ({"to": "@alice"}, "invalid-input"),
        ({"to": "@alice", "text": "x", "colour": "red"}, "invalid-input"),
        ({"to": "@alice", "text": "x", "skill": "s" * 201}, "invalid-input"),
        ({"to": "@alice", "text": "x" * 400_000}, "message-too-large"),
    ]
    async with emptied(shared) as room:
        await room.worker("alice")

        for body, code in bodies:
            assert (await room.post("", **body))["code"] == code, body

        assert (await room.get("", worker="@alice"))["tasks"] == []


@pytest.mark.requirement("task-retry")
async def test_what_names_no_task_or_several_is_refused(shared: TaskRoom):
    async with emptied(shared) as room:
        await room.worker("alice")
        row = await room.row((await room.delegate("@alice"))["id"])
        alike = [replace(row, id=f"abcdef{n}" + "0" * 25, requested_seq=1000 + n) for n in (1, 2)]
        await room.parts.database.write(lambda c: [c.tasks.insert_task(each) for each in alike])

        async def code(ref: str, path: str = "") -> str:
            return (await room.get(f"/{ref}{path}"))["code"]

        unknown = ("f" * 32, "f" * 31, row.id[:3], "zzzzzzz", row.id.upper() + "x", row.id + "0")
        assert {await code(ref) for ref in unknown} == {"not-found"}
        assert {await code("f" * 32, path) for path in ("/events", "/stream")} == {"not-found"}
        refused = await room.get("/abcd")
        assert refused["code"] == "conflict"
        assert refused["detail"].endswith("begin with abcd: abcdef100000, abcdef200000")
        assert (await room.get("/abcdef2"))["id"] == alike[1].id


async def test_tasks_are_listed_by_worker_state_and_page(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice, _ = await room.worker("alice"), await room.worker("bob")
        views = [await room.delegate(to, str(n)) for n, to in enumerate(["@alice", "@bob"] * 2)]
        await alice.refuse(views[0]["id"], "not mine")

        async def texts(**query: Any) -> list[str]:
            return [view["text"] for view in (await room.get("", **query))["tasks"]]

        assert await texts() == ["3", "2", "1", "0"]
        assert await texts(worker="@alice") == ["2", "0"]
        assert await texts(requester="@maria", open=True) == ["3", "2", "1"]
        assert await texts(open=False) == ["0"]
        assert await texts(state="rejected") == ["0"]
        assert await texts(limit=1, before=views[2]["requested"]) == ["1"]
        assert (await room.get("", state="lost"))["code"] == "invalid-input"
        assert (await room.get("", worker="@nobody"))["code"] == "unknown-recipient"
        assert "artifacts" not in (await room.get(""))["tasks"][0]
