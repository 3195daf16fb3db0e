"""A2A's operations over the control plane's tasks, for principals of every kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from library.whole import WHOLE
from postroom.protocol.content import Content
from postroom.protocol.principal import ALL_SCOPES, DOOR, KEY, USUAL_SCOPES, Principal
from postroom.protocol.priority import Input
from postroom.store.agents import Agent
from postroom.tasks.operations import AgentTasks
from postroom_a2a.json_operations import JsonOperations
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, Hand, TaskRoom, emptied, task_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("a2a-parts-pass")]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture(scope="module")
async def anna(shared: TaskRoom) -> Agent:
    """Another person than the operator."""
    return await shared.parts.directory.register("anna", "human")


def principal(agent: Agent, *, operates: bool = False) -> Principal:
    scopes = ALL_SCOPES if operates else USUAL_SCOPES
    method = DOOR if agent.kind == "worker" else KEY
    return Principal(agent.uid, agent.org, agent.nick, agent.kind, scopes, method)


class Server:
    """The operations of one agent, for one principal."""

    def __init__(self, room: TaskRoom, worker: Hand, me: Principal) -> None:
        parts = room.parts
        tasks = AgentTasks(parts.tasks, parts.database, parts.changes, worker.agent, me)
        self.operations = JsonOperations(tasks)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return json.loads(await self.operations.answer(Call(1, method, params)))

    async def error(self, method: str, **params: Any) -> int:
        with pytest.raises(RpcError) as refused:
            await self.call(method, **params)
        return refused.value.code

    async def send(self, message: dict[str, Any]) -> dict[str, Any]:
        now = {"returnImmediately": True}
        return (await self.call("SendMessage", message=message, configuration=now))["task"]

    async def stream(self, method: str, **params: Any) -> AsyncGenerator[dict[str, Any]]:
        async with (
            asyncio.timeout(SECONDS),
            aclosing(self.operations.stream(Call(1, method, params))) as events,
        ):
            async for event in events:
                yield json.loads(event)


def said(message_id: str, text: str = "do it", **more: Any) -> dict[str, Any]:
    parts = [{"text": text}]
    return {"messageId": message_id, "role": "ROLE_USER", "parts": parts, **more}


async def test_a_whole_message_is_the_task_of_whoever_sent_it_and_nobody_else_knows_of_it(
    shared: TaskRoom, anna: Agent
):
    async with emptied(shared) as room:
        bob, carol = await room.worker("bob"), await room.worker("carol")
        hers = Server(room, bob, principal(anna))
        task = await hers.send(WHOLE)
        assert (task["history"], task["contextId"]) == ([WHOLE], "talk")
        assert (await hers.send(WHOLE))["id"] == task["id"]

        for knows in (hers, Server(room, bob, principal(bob.agent))):
            assert (await knows.call("GetTask", id=task["id"]))["history"] == [WHOLE]
            assert [t["id"] for t in (await knows.call("ListTasks"))["tasks"]] == [task["id"]]
        everything = Server(room, bob, principal(room.owner, operates=True))
        assert (await everything.call("ListTasks"))["totalSize"] == 1
        others = (
            Server(room, bob, principal(room.owner)),
            Server(room, bob, principal(carol.agent)),
            Server(room, carol, principal(anna)),
        )
        for other in others:
            for method in ("GetTask", "CancelTask"):
                assert await other.error(method, id=task["id"]) == Code.TASK_NOT_FOUND
            found = await other.call("ListTasks")
            assert (found["tasks"], found["totalSize"]) == ([], 0)
            with pytest.raises(RpcError) as refused:
                await anext(other.stream("SubscribeToTask", id=task["id"]))
            assert refused.value.code is Code.TASK_NOT_FOUND


async def test_a_task_is_followed_from_its_first_change_to_its_end(shared: TaskRoom, anna: Agent):
    async with emptied(shared) as room:
        bob = await room.worker("bob")
        server = Server(room, bob, principal(anna))
        events = server.stream("SendStreamingMessage", message=said("streamed"))
        first = (await anext(events))["task"]
        assert first["status"]["state"] == "TASK_STATE_SUBMITTED"
        await bob.take(first["id"])
        await bob.say(first["id"], TaskState.WORKING, "at it", attempt=1)
        late = server.stream("SubscribeToTask", id=first["id"])
        shown = (await anext(late))["task"]
        assert shown["status"]["message"]["parts"] == [{"text": "at it"}]
        await bob.make(first["id"], "42")
        await bob.say(first["id"], TaskState.COMPLETED, "done")

        def kinds(found: list[dict[str, Any]]) -> list[str]:
            return [
                one["statusUpdate"]["status"]["state"] if "statusUpdate" in one else "artifact"
                for one in found
            ]

        rest = ["artifact", "TASK_STATE_COMPLETED"]
        assert kinds([event async for event in events]) == ["TASK_STATE_WORKING", *rest]
        assert kinds([event async for event in late]) == rest
        assert await server.error("CancelTask", id=first["id"]) == Code.TASK_NOT_CANCELABLE


async def test_a_question_is_answered_whole_by_who_asked_and_by_nobody_else(
    shared: TaskRoom, anna: Agent
):
    async with emptied(shared) as room:
        bob = await room.worker("bob")
        await bob.listen()
        server = Server(room, bob, principal(anna))
        task = (await server.send(said("asks")))["id"]
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, attempt=1)
        await bob.say(task, TaskState.INPUT_REQUIRED, "which?")
        answer = WHOLE | {"messageId": "answer", "taskId": task, "contextId": task}

        now = {"returnImmediately": True}
        worker = Server(room, bob, principal(bob.agent))
        code = await worker.error("SendMessage", message=answer, configuration=now)
        assert code == Code.UNSUPPORTED_OPERATION
        sending = asyncio.create_task(server.call("SendMessage", message=answer, configuration=now))
        by, heard = await bob.next()
        assert isinstance(heard, Input)
        assert (by, heard.message) == (anna.uid, answer)
        await bob.answered(task, heard.message)
        assert (await sending)["task"]["history"][-1] == answer
        assert await worker.error("CancelTask", id=task) == Code.TASK_NOT_CANCELABLE


async def test_pages_are_made_of_all_tasks_the_last_changed_first(shared: TaskRoom, anna: Agent):
    async with emptied(shared) as room:
        bob = await room.worker("bob")
        server = Server(room, bob, principal(anna))
        ids = [(await server.send(said(f"p{n}", contextId=f"c{n % 2}")))["id"] for n in range(5)]
        await bob.take(ids[0])
        await bob.say(ids[0], TaskState.WORKING, attempt=1)
        await bob.make(ids[0], "42")
        wanted = [ids[0], *reversed(ids[1:])]

        found: list[str] = []
        token = ""
        while token or not found:
            page = await server.call("ListTasks", pageSize=2, pageToken=token)
            assert page["totalSize"] == 5
            assert "artifacts" not in page["tasks"][0]
            found += [task["id"] for task in page["tasks"]]
            token = page["nextPageToken"]
        assert found == wanted
        odd = await server.call("ListTasks", contextId="c1", includeArtifacts=True)
        assert [task["id"] for task in odd["tasks"]] == [ids[3], ids[1]]
        failed = await server.call("ListTasks", status="TASK_STATE_FAILED")
        assert failed["totalSize"] == 0
        assert await server.error("ListTasks", pageToken="x") == Code.INVALID_PARAMS
        asked = {"role": "worker", "other": anna.uid, "limit": 1, "artifacts": True}
        (first,) = (answer := await bob.ask("page", **asked))["tasks"]
        assert (first["id"], first["artifacts"][0]["artifactId"]) == (ids[0], "a1")
        assert (answer["total"], bool(answer["next"])) == (5, True)
        assert (await bob.ask("page", role="requester"))["total"] == 0


async def test_what_a_client_cannot_mean_is_refused(shared: TaskRoom, anna: Agent):
    async with emptied(shared) as room:
        bob = await room.worker("bob")
        server = Server(room, bob, principal(anna))
        blank = said("blank", " ")
        assert await server.error("SendMessage", message=blank) == Code.INVALID_PARAMS
        long = said("long") | {"parts": [{"data": 1, "filename": "x" * 300}]}
        assert await server.error("SendMessage", message=long) == Code.INVALID_PARAMS
        person = AgentTasks(
            room.parts.tasks, room.parts.database, room.parts.changes, anna, principal(room.owner)
        )
        call = Call(1, "SendMessage", {"message": said("person")})
        with pytest.raises(RpcError) as refused:
            await JsonOperations(person).answer(call)
        assert refused.value.code is Code.INVALID_PARAMS
        assert Content.whole(WHOLE).message("m", "ROLE_USER") == WHOLE
