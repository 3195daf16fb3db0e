"""Tasks that are asked for again, and the door by which a task was asked for, in a control plane."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom.client.locate import CLI_AGENT
from postroom.errors import Forbidden, NotFound
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.principal import ALL_SCOPES, KEY, USUAL_SCOPES, Principal
from postroom.protocol.tasks import SKILL, Door, task_id
from postroom.store.agents import Agent
from postroom.tasks.operations import AgentTasks
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import Hand, TaskRoom, emptied, task_room
from tests.rig import new_uid

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


def principal(agent: Agent, *, operates: bool = False) -> Principal:
    scopes = ALL_SCOPES if operates else USUAL_SCOPES
    return Principal(agent.uid, agent.org, agent.nick, agent.kind, scopes, KEY)


async def failed(room: TaskRoom, worker: Hand, **asked: Any) -> str:
    """A task that has failed."""
    task = (await room.delegate(f"@{worker.agent.nick}", **asked))["id"]
    await worker.take(task)
    await worker.say(task, TaskState.WORKING, attempt=1)
    await worker.say(task, TaskState.FAILED, "no idea")
    return task


async def asked_over_the_bus(
    room: TaskRoom, asker: Hand, worker: Hand, request: TaskRequest
) -> str:
    """A task that a worker asks for, with whatever it says of its request."""
    made = new_uid()
    envelope = Envelope(made, worker.uid, text_message(made, "do it"), time.time(), request=request)
    subject = subjects.inbox(worker.uid, asker.uid)
    await asker.bus.publish(subject, envelope.encode(), id=made)
    await room.folded("INBOX")
    return task_id(worker.uid, asker.uid, made)


@pytest.mark.requirement("task-retry")
async def test_a_failed_task_is_asked_for_again_with_the_same_message(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice", "write")
        data = {"data": {"pages": 3}}
        old = await failed(room, alice, text="write it", skill="write", parts=[data])

        new = await room.post(f"/{old}/retry")

        assert new["id"] != old
        assert (new["retry_of"], new["skill"], new["context"]) == (
            old,
            "write",
            (await room.get(f"/{old}"))["context"],
        )
        assert new["parts"] == [{"text": "write it"}, data]
        stored = Envelope.decode((await room.rig.admin.get("INBOX", new["requested"])).payload)
        assert stored.message["referenceTaskIds"] == [old]
        assert (await room.get(f"/{old}"))["retried_as"] == [new["id"]]


async def test_a_task_that_is_asked_for_again_by_several_at_once_has_one_retry(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        anna = await room.parts.directory.register(f"anna-{new_uid()[:6]}", "human")
        key = principal(anna)
        asked = await room.parts.tasks.delegate(anna.uid, alice.agent, "do it")
        await alice.refuse(asked.id, "not today")
        operator = principal(room.owner, operates=True)

        made = await asyncio.gather(
            *(room.parts.retries.retry(asked.id, me) for me in (key, operator, key, operator))
        )
        again = await room.parts.retries.retry(asked.id, key)
        other = await room.parts.retries.retry(asked.id, key, key="once more")
        same = await room.parts.retries.retry(asked.id, key, key="once more")

        assert len({view.id for view in (*made, again)}) == 1
        assert other.id == same.id != again.id


async def test_what_goes_on_or_is_completed_is_not_asked_for_again(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        assert "has not ended" in (await room.post(f"/{task}/retry"))["detail"]
        await alice.take(task)
        await alice.say(task, TaskState.WORKING, attempt=1)
        assert (await room.post(f"/{task}/retry"))["status"] == 409
        await alice.say(task, TaskState.COMPLETED, "done")
        assert "is completed" in (await room.post(f"/{task}/retry"))["detail"]

        assert (await room.post(f"/{task}/retry", force=True))["retry_of"] == task


async def test_a_task_of_an_agent_that_was_removed_is_not_asked_for_again(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = await failed(room, alice)
        await room.parts.workers.remove(alice.uid)

        refused = await room.post(f"/{task}/retry")

        assert refused["status"] == 409
        assert "@alice was removed" in refused["detail"]


async def test_only_who_asked_and_the_operator_ask_again(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        anna = await room.parts.directory.register(f"anna-{new_uid()[:6]}", "human")
        task = await failed(room, alice)

        with pytest.raises(NotFound):  # as if there were none
            await room.parts.retries.retry(task, principal(anna))
        with pytest.raises(Forbidden):  # its worker sees it
            await room.parts.retries.retry(task, principal(alice.agent))
        assert not (await room.get(f"/{task}")).get("retried_as")


@pytest.mark.requirement("task-seen-by-parties")
async def test_a_task_shows_the_door_by_which_it_was_asked_for(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        me = principal(room.owner, operates=True)
        by_api = await room.delegate("@alice")
        named = {"User-Agent": f"{CLI_AGENT}/1"}
        body = {"to": "@alice", "text": "do it"}
        by_cli = (await room.api.post("/v1/tasks", json=body, headers=named)).json()
        tasks = AgentTasks(
            room.parts.tasks,
            room.parts.database,
            room.parts.changes,
            alice.agent,
            me,
            Door.JSONRPC,
        )
        by_a2a, _ = await tasks.submit(text_message(new_uid(), "do it"), me.uid, follow=False)
        # A worker may write into its envelope what it likes.
        by_bus = await asked_over_the_bus(room, bob, alice, TaskRequest(door=Door.CLI))

        doors = {task: (await room.get(f"/{task}"))["door"] for task in (by_a2a, by_bus)}
        assert doors == {by_a2a: "a2a+jsonrpc", by_bus: "bus"}
        assert (by_api["door"], by_cli["door"]) == ("api", "cli")
        listed = (await room.get("", door="bus", worker=alice.uid))["tasks"]
        assert [task["id"] for task in listed] == [by_bus]


async def test_a_worker_claims_no_retry_of_what_another_asked_for(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        task = await failed(room, alice)
        own = await asked_over_the_bus(room, bob, alice, TaskRequest())

        claimed = await asked_over_the_bus(room, bob, alice, TaskRequest(retry_of=task))
        again = await asked_over_the_bus(room, bob, alice, TaskRequest(retry_of=own))

        assert (await room.row(claimed)).retry_of == ""
        assert (await room.row(again)).retry_of == own
        assert not (await room.get(f"/{task}")).get("retried_as")


async def test_a_requeued_request_is_a_retry_of_its_task(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = await failed(room, alice)
        row = await room.row(task)
        stored = await room.rig.admin.get("INBOX", row.requested_seq)
        again = json.loads(stored.payload) | {"id": new_uid(), "requeue_of": row.request}
        await room.parts.bus.publish(stored.subject, json.dumps(again).encode(), id=again["id"])
        await room.folded("INBOX")

        made = await room.row(task_id(alice.uid, room.owner.uid, again["id"]))
        assert made.retry_of == task


async def test_an_a2a_client_names_a_skill_in_the_metadata_of_its_message(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice", "write")
        me = principal(room.owner, operates=True)
        parts = room.parts
        tasks = AgentTasks(parts.tasks, parts.database, parts.changes, alice.agent, me)
        message = text_message(new_uid(), "do it") | {"metadata": {SKILL: "write"}}

        task, _ = await tasks.submit(message, me.uid, follow=False)

        assert (await room.row(task)).skill == "write"


async def test_the_messages_of_a_task_are_its_request_answers_news_and_what_was_sent(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        task = (await room.delegate("@alice", "paint it"))["id"]
        await alice.take(task)
        await alice.say(task, TaskState.WORKING, attempt=1)
        said = new_uid()
        message = text_message(said, "which paint?") | {"referenceTaskIds": [task]}
        envelope = Envelope(said, bob.uid, message, time.time())
        await alice.bus.publish(subjects.inbox(bob.uid, alice.uid), envelope.encode(), id=said)
        # Who is not at the task has no part in it, whatever it says.
        other = new_uid()
        strange = Envelope(
            other,
            alice.uid,
            text_message(other, "hi") | {"referenceTaskIds": [task]},
            time.time(),
        )
        await bob.bus.publish(subjects.inbox(alice.uid, bob.uid), strange.encode(), id=other)
        await room.folded("INBOX")
        await alice.say(task, TaskState.INPUT_REQUIRED, "red or blue?")
        answer = text_message(new_uid(), "blue")
        await alice.answered(task, answer)
        await alice.say(task, TaskState.COMPLETED, "it is blue")

        found = (await room.get(f"/{task}/messages"))["messages"]

        assert [(each["kind"], each["text"]) for each in found] == [
            ("request", "paint it"),
            ("message", "which paint?"),
            ("news", "red or blue?"),
            ("answer", "blue"),
            ("news", "it is blue"),
        ]
        assert found[1]["to"]["nick"] == "bob"
