"""What the API shows of workers, and what it takes from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom_a2a.task_state import TaskState
from tests.control.taskroom import TaskRoom, card, door_of, emptied, task_room
from tests.control.test_served_card import listening, whole

pytestmark = pytest.mark.anyio

SHOWN = ("id", "state", "text", "attempt", "status_text")
"""Of the task that a worker is at, beside the times."""


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def test_a_worker_is_shown_with_what_it_is_at(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        await room.worker("bob")
        one, two = [(await room.delegate("@alice", text))["id"] for text in ("one\nx", "two")]
        await room.delegate("@alice", "three")

        async def shown(nick: str) -> tuple[dict[str, Any] | None, int]:
            view = (await room.api.get(f"/v1/workers/{nick}")).json()
            task = view["task"] and {name: view["task"][name] for name in SHOWN}
            return task, view["open_tasks"]

        assert await shown("alice") == (None, 3)
        await alice.take(one)
        await alice.take(two)
        await alice.say(two, TaskState.WORKING, attempt=1)
        await alice.say(two, TaskState.INPUT_REQUIRED, "?")
        asks = {
            "id": two,
            "state": "input-required",
            "text": "two",
            "attempt": 1,
            "status_text": "?",
        }
        assert await shown("alice") == (asks, 3)
        await alice.say(one, TaskState.WORKING, attempt=2)
        works = {"id": one, "state": "working", "text": "one x", "attempt": 2, "status_text": ""}
        assert await shown("alice") == (works, 3)
        await alice.say(one, TaskState.COMPLETED)
        assert await shown("alice") == (asks, 2)
        assert await shown("bob") == (None, 0)
        listed = (await room.api.get("/v1/workers")).json()["workers"]
        assert [worker["open_tasks"] for worker in listed] == [2, 0]


# ── its own card ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_card_that_a_worker_serves_itself_is_shown(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice", "write")
        own = card(alice.uid, "alice", "write") | {"version": "its own"}

        path = "/v1/workers/@alice/agent-card.json"
        early = await room.api.get(path)
        async with listening(
            room.parts.workers.state_folder(alice.uid), whole(json.dumps(own).encode())
        ):
            there = await room.api.get(path)
        alice.end()
        stopped = await room.api.get(path)

        assert (early.status_code, early.json()["code"]) == (409, "conflict")
        assert (there.status_code, there.json()) == (200, own)
        assert (stopped.json()["code"], stopped.json()["remedy"]) == (
            "conflict",
            "postroom restart alice",
        )
        assert (await room.api.get("/v1/workers/maria/agent-card.json")).status_code == 404


@pytest.mark.requirement("inward-socket-itself")
async def test_while_a_worker_keeps_the_post_room_waiting_for_its_card_others_are_served(
    shared: TaskRoom,
):
    asked = asyncio.Event()

    async def silent(_: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with emptied(shared) as room:
        alice = await room.worker("alice")
        await room.worker("bob")
        async with listening(room.parts.workers.state_folder(alice.uid), silent):
            waiting = [
                asyncio.create_task(room.api.get("/v1/workers/@alice/agent-card.json"))
                for _ in range(50)
            ]
            async with asyncio.timeout(20):
                await asked.wait()
                listed = await room.api.get("/v1/workers")
                sent = await room.api.post("/v1/messages", json={"to": "@bob", "text": "hello"})
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    assert (listed.status_code, sent.status_code) == (200, 201)


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_only_a_worker_whose_template_has_a_sidecar_table_reports_events(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        runs = room.parts.workers._runs._last
        runs[bob.uid].interactive = False
        alice.end()
        del runs[alice.uid]  # its start is not noted yet
        body = {"events": [{"type": "x"}]}

        async with door_of(room, bob) as door:
            refused = await door.post(f"/v1/workers/{bob.uid}/sdk-events", json=body)
        async with door_of(room, alice) as door:
            unnoted = await door.post(f"/v1/workers/{alice.uid}/sdk-events", json=body)
            await alice.start()
            taken = await door.post(f"/v1/workers/{alice.uid}/sdk-events", json=body)

        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (unnoted.status_code, taken.status_code) == (403, 202)
        assert await room.rig.admin.last_sequence("EVENTS") == 1
