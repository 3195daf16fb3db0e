"""How much a worker does unasked: set by people for good or until a task ends, kept, told, shown, and taken back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from postroom.identity import pins as pins_module
from postroom.protocol.principal import Scope
from postroom_a2a.task_state import TaskState
from tests.approvals.asking import Sidecar, answer, shown, sidecar_of
from tests.control.taskroom import TaskRoom, door_of, emptied, task_room
from tests.control.test_keys import person

pytestmark = pytest.mark.anyio

PATH = "/v1/workers/alice/policy"
DENIES = """
[worker]
name = "alice"
[workstation]
command = ["true"]
adapter = "claude"
[sidecar]
auto_deny = ["Bash(*push*)"]
"""


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pins_module._COST, "n", 2)


async def let(api: httpx2.AsyncClient, autonomy: str, **more: Any) -> httpx2.Response:
    return await api.post(PATH, json={"autonomy": autonomy, **more})


async def kept(room: TaskRoom) -> list[tuple[str, str | None]]:
    found = (await room.api.get(PATH)).json()
    return [(each["autonomy"], each["task"]) for each in found["autonomy"]]


async def word(room: TaskRoom) -> str:
    return (await room.api.get("/v1/workers/alice")).json()["autonomy"]


async def heard(alice: Sidecar) -> list[dict[str, Any]]:
    await alice.room.folded("EVENTS")
    return [each for each in (await alice.heard())["records"] if each["type"] == "policy"]


async def working(room: TaskRoom, alice: Sidecar) -> str:
    """A task that the worker works on; its id."""
    task = (await room.delegate("@alice"))["id"]
    await alice.worker.take(task)
    await alice.worker.say(task, TaskState.WORKING)
    return task


@pytest.mark.requirement("autonomy-set")
async def test_what_is_set_is_kept_told_and_shown_with_who_and_the_last_word_counts(
    shared: TaskRoom,
):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        done = [await let(room.api, word) for word in ("all", "all", "edits", "ask")]
        assert [each.status_code for each in done] == [200] * 4
        assert await kept(room) == [("ask", None)]
        (said,) = done[-1].json()["autonomy"]
        assert said["by"]["nick"] == room.owner.nick
        told = await heard(alice)
        assert [(e["change"], e["autonomy"], e["by"]["nick"]) for e in told[:-1]] == [
            ("autonomy", "all", room.owner.nick),
            ("autonomy", "edits", room.owner.nick),
        ]
        # The last record has all of it as it is kept now.
        assert (told[-1]["rules"], told[-1]["autonomy"]) == ([], {"": "ask"})


@pytest.mark.requirement("autonomy-set")
async def test_what_is_set_for_a_task_ends_with_it_by_itself(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        task = await working(room, alice)
        assert (await let(room.api, "all", task=task[:8])).status_code == 200
        assert (await kept(room), (await heard(alice))[-1]["autonomy"]) == (
            [("all", task)],
            {task: "all"},
        )
        await alice.worker.say(task, TaskState.COMPLETED, "done")
        await room.folded("TASKS")
        assert await kept(room) == []
        over = await let(room.api, "all", task=task)
        assert (over.status_code, "has ended" in over.text) == (409, True)
        # What is set for all turns ends what was set for some.
        other = await working(room, alice)
        await let(room.api, "all", task=other)
        await let(room.api, "ask")
        assert await kept(room) == [("ask", None)]


async def test_a_task_of_another_worker_is_none(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room), sidecar_of(room, "bob"):
        task = (await room.delegate("@bob"))["id"]
        assert (await let(room.api, "all", task=task)).status_code == 404
        assert (await let(room.api, "all", task="f" * 32)).status_code == 404
        assert await kept(room) == []


@pytest.mark.requirement("policy-added-at-once")
async def test_what_waits_is_answered_by_the_rule_or_the_autonomy_that_allows_it_now(
    shared: TaskRoom,
):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        task = await working(room, alice)
        test, lint, asks = (
            await alice.ask(input={"command": "npm test 2>&1 | tail"}, task=task),
            await alice.ask(input={"command": "npm run lint"}, task=task),
            await alice.ask(kind="question", tool="AskUserQuestion", input={}, task=task),
        )
        elsewhere = await alice.ask(input={"command": "npm run lint"})
        rule = {"pattern": "Bash(npm test | tail)", "channel": "cli"}
        assert (await room.api.post(PATH, json=rule)).status_code == 200
        settled = (await shown(room, test))["answer"]
        assert (settled["decision"], settled["by"]["nick"], settled["channel"]) == (
            "allowed",
            room.owner.nick,
            "cli",
        )
        assert settled["reason"] == "rule Bash(npm test | tail)"
        assert (await shown(room, lint))["state"] == "pending"
        await let(room.api, "all", task=task)
        states = [(await shown(room, each))["state"] for each in (lint, asks, elsewhere)]
        assert states == ["allowed", "pending", "pending"]


@pytest.mark.requirement("policy-added-at-once")
async def test_what_the_template_denies_is_not_answered_by_autonomy(shared: TaskRoom):
    async with emptied(shared) as room:
        worker = await room.worker("alice", template=DENIES)
        assert await word(room) == "ask"
        async with door_of(room, worker) as client:
            alice = Sidecar(room, worker, client)
            denied = await alice.ask(input={"command": "ls && git push"})
            await let(room.api, "all")
            assert (await shown(room, denied))["state"] == "pending"
        assert await word(room) == "all"


@pytest.mark.requirement("approval-pin-demanded")
async def test_with_a_pin_set_no_autonomy_is_set_without_it_and_nothing_that_waits_is_answered(
    shared: TaskRoom,
):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        waits = await alice.ask()
        await room.api.put("/v1/pin", json={"pin": "4711"})
        try:
            refused = [await let(room.api, word) for word in ("all", "edits", "ask")]
            refused.append(await let(room.api, "all", pin="1"))
            refused.append(await answer(room, "alice", waits))
            before = (await kept(room), (await shown(room, waits))["state"])
            right = await let(room.api, "all", pin="4711")
        finally:
            await room.api.put("/v1/pin", json={"pin": "", "old": "4711"})
        codes = [each.json()["code"] for each in refused]
        assert codes == [*["pin-required"] * 3, "pin-wrong", "pin-required"]
        assert before == ([], "pending")
        assert right.status_code == 200
        assert (await shown(room, waits))["state"] == "allowed"


async def test_only_who_operates_may_and_no_worker_not_even_for_itself(shared: TaskRoom):
    reads = person(shared, "ann", Scope.READ, Scope.SEND)
    async with emptied(shared) as room, sidecar_of(room) as alice, reads as ann:
        for api, path in ((ann.api, PATH), (alice.door, f"{alice.path}/policy")):
            assert (await api.post(path, json={"autonomy": "all"})).status_code == 403
        assert await kept(room) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"autonomy": "everything"},
        {"autonomy": "all", "pattern": "Edit"},
        {"pattern": "Edit", "task": "0" * 32},
    ],
)
async def test_a_change_is_one_thing(shared: TaskRoom, body: dict[str, Any]):
    async with emptied(shared) as room, sidecar_of(room):
        assert (await room.api.post(PATH, json=body)).status_code in (400, 422)
        assert await kept(room) == []
