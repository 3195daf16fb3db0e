"""The front door while the fold is behind its log: who has just stored a task waits for it, and is told of it."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from a2a.types import (
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    a2a_pb2_grpc,
)
from psycopg import sql

from postroom.control.a2a.grpc import open_grpc
from postroom.control.endpoints import plan
from postroom.http.outbound import OutboundPolicy
from postroom.protocol import subjects
from postroom.settings import Settings
from postroom.tasks import service, unfolded
from postroom.tasks.unfolded import Unfolded
from tests.control.taskroom import KEY, SECONDS, TaskRoom, emptied, task_room
from tests.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("task-request-runs-once")]

VERSION = {"A2A-Version": "1.0"}
Hold = Callable[[], Any]
FORMS = [(s, p) for s in ("SendMessage", "SendStreamingMessage") for p in (False, True)]


@contextmanager
def locked(file: Path) -> Generator[None]:
    """Nobody else writes to that database."""
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def locked_cursors(url: str) -> Generator[None]:
    """Nobody else folds; all can be read."""
    with psycopg.connect(url) as other:
        where = "SELECT schemaname FROM pg_tables WHERE tablename = 'cursors'"
        for (schema,) in other.execute(where).fetchall():
            table = sql.Identifier(schema, "cursors")
            other.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(table))
        yield
        other.rollback()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
async def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[tuple[TaskRoom, Hold]]:
    folder = tmp_path_factory.mktemp("room")
    if request.param == "sqlite":
        async with task_room(folder, memory=False) as room:
            (file,) = folder.rglob("projection.db")
            yield room, lambda: locked(file)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_database()
        async with task_room(folder, database_url=url, memory=False) as room:
            yield room, lambda: locked_cursors(url)


@asynccontextmanager
async def behind(hold: Hold, patch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """The fold stands still until a call has waited in vain for the first time."""
    patch.setattr(service, "FOLD_WAIT", 0.1)
    noted, note = asyncio.Event(), Unfolded.note

    def noting(self: Unfolded, task: str) -> None:
        note(self, task)
        noted.set()

    patch.setattr(Unfolded, "note", noting)
    with ExitStack() as stack:
        stack.enter_context(hold())

        async def release() -> None:
            await noted.wait()
            stack.close()

        releasing = asyncio.create_task(release())
        async with asyncio.timeout(SECONDS):
            yield
            await releasing


def params(push: bool) -> dict[str, Any]:
    said = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "do it"}]}
    config = {"url": "http://127.0.0.1:9/hook"}
    more = {"taskPushNotificationConfig": config} if push else {}
    return {"message": said, "configuration": {"returnImmediately": True, **more}}


async def over_http(room: TaskRoom, rest: bool, worker: str, method: str, push: bool) -> str:
    """The id of the task that the first answer shows."""
    if rest:
        name = "send" if method == "SendMessage" else "stream"
        path, body = f"/a2a/{worker}/message:{name}", params(push)
    else:
        path = f"/a2a/{worker}"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params(push)}
    async with room.api.stream("POST", path, json=body, headers=VERSION) as answer:
        async for line in answer.aiter_lines():
            text = line.removeprefix("data: ")
            if text.startswith("{"):
                found = json.loads(text)
                found = found if rest else found.get("result", found)
                assert "task" in found, found
                return found["task"]["id"]
    raise AssertionError("nothing was answered")


async def pushes(room: TaskRoom, worker: str, task: str) -> int:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "ListTaskPushNotificationConfigs",
        "params": {"taskId": task},
    }
    answer = (await room.api.post(f"/a2a/{worker}", json=body, headers=VERSION)).json()
    return len(answer["result"].get("configs") or ())


@pytest.mark.parametrize("rest", [False, True], ids=["jsonrpc", "rest"])
@pytest.mark.parametrize("method, push", FORMS)
async def test_a_task_that_the_call_has_stored_is_waited_for(
    shared: tuple[TaskRoom, Hold],
    monkeypatch: pytest.MonkeyPatch,
    rest: bool,
    method: str,
    push: bool,
):
    whole, hold = shared
    async with emptied(whole) as room:
        room.parts.pushes.pusher.sender._policy = OutboundPolicy.parse(["127.0.0.1:9"])
        bob = await room.worker("bob")
        async with behind(hold, monkeypatch):
            task = await over_http(room, rest, bob.uid, method, push)
        assert (await room.api.get(f"/v1/tasks/{task}")).status_code == 200
        assert await pushes(room, bob.uid, task) == push


async def test_over_grpc_too(shared: tuple[TaskRoom, Hold], monkeypatch: pytest.MonkeyPatch):
    whole, hold = shared
    async with emptied(whole) as room, AsyncExitStack() as stack:
        settings = Settings(grpc_listen="127.0.0.1:0")
        base = f"http://{room.site.host}"
        await open_grpc(room.parts.installation, plan(settings), None, base, stack)
        near = room.parts.installation.grpc.near
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(near))
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        bob = await room.worker("bob")
        said = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text="do it")])
        now = SendMessageConfiguration(return_immediately=True)
        asked = SendMessageRequest(message=said, tenant=bob.uid, configuration=now)
        key = ("a2a-version", "1.0"), ("authorization", f"Bearer {KEY}")
        async with behind(hold, monkeypatch):
            task = (await stub.SendMessage(asked, metadata=key)).task.id
        assert (await room.api.get(f"/v1/tasks/{task}")).status_code == 200


@pytest.mark.parametrize("rest", [False, True], ids=["jsonrpc", "rest"])
async def test_after_the_wait_503_names_the_task_and_the_same_message_finds_it(
    shared: tuple[TaskRoom, Hold], monkeypatch: pytest.MonkeyPatch, rest: bool
):
    whole, hold = shared
    monkeypatch.setattr(service, "FOLD_WAIT", 0.05)
    monkeypatch.setattr(unfolded, "STORED_WAIT", 0.05)
    async with emptied(whole) as room:
        bob = await room.worker("bob")
        body: dict[str, Any] = params(False)
        path = f"/a2a/{bob.uid}/message:send"
        if not rest:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body}
            path = f"/a2a/{bob.uid}"
        with hold():
            answer = await room.api.post(path, json=body, headers=VERSION)
            native = await room.api.post("/v1/tasks", json={"to": bob.agent.nick, "text": "more"})
            unseen = await room.api.get(f"/v1/tasks/{native.json()['id']}")
        assert answer.status_code == 503, answer.text
        assert "retry-after" in answer.headers
        error = answer.json()["error"]
        assert "same" in error["message"]
        assert "messageId" in error["message"]
        assert native.status_code == 201
        assert (unseen.status_code, unseen.json()["code"]) == (503, "not-shown-yet")
        monkeypatch.undo()
        again = (await room.api.post(path, json=body, headers=VERSION)).json()
        task = (again if rest else again["result"])["task"]["id"]
        assert task in error["message"]


@pytest.mark.requirement("task-request-runs-once")
async def test_the_answer_to_a_report_is_never_the_task_before_it(
    shared: tuple[TaskRoom, Hold], monkeypatch: pytest.MonkeyPatch
):
    whole, hold = shared
    async with emptied(whole) as room, AsyncExitStack() as stack:
        made = (await room.api.post("/v1/agents", json={"nick": "otto"})).json()
        stack.push_async_callback(room.api.delete, f"/v1/agents/{made['uid']}")
        otto = {"Authorization": f"Bearer {made['key']['key']}"}
        task = (await room.api.post("/v1/tasks", json={"to": "otto", "text": "do it"})).json()["id"]

        async def report(seq: int, text: str) -> Any:
            body = {"state": "working", "text": text, "seq": seq}
            return await room.api.post(f"/v1/tasks/{task}/status", json=body, headers=otto)

        begun = (await report(0, "begun")).json()["seq"]
        with monkeypatch.context() as patch:
            patch.setattr(service, "STORED_WAIT", 0.05)
            with hold():
                behind = await report(begun, "half")
        assert (behind.status_code, behind.json()["code"]) == (503, "not-shown-yet")
        assert task in behind.json()["detail"]

        last = await room.rig.admin.last_sequence("TASKS")
        again = await report(begun, "half")  # the same report
        assert (again.status_code, again.json()["seq"]) == (200, last)

        with hold():
            reporting = asyncio.create_task(report(last, "done soon"))
            async with asyncio.timeout(SECONDS):
                # Nothing tells of the log while the fold stands still.
                while await room.rig.admin.last_sequence("TASKS") == last:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        answer = await reporting
        assert answer.json()["seq"] == last + 1
        assert await room.rig.admin.last_sequence("TASKS") == last + 1


@pytest.mark.parametrize("rest", [False, True], ids=["jsonrpc", "rest"])
@pytest.mark.parametrize("full", [True, False], ids=["full", "slow"])
async def test_who_cannot_be_shown_what_is_stored_since_the_database_is_busy_is_told_that_it_is(
    shared: tuple[TaskRoom, Hold], monkeypatch: pytest.MonkeyPatch, rest: bool, full: bool
):
    """429 would say that nothing was accepted."""
    whole, _ = shared
    async with emptied(whole) as room:
        bob = await room.worker("bob")
        bus = room.parts.tasks._requests._submitter._bus
        publish = bus.publish
        body: dict[str, Any] = params(False)
        path = f"/a2a/{bob.uid}/message:send"
        if not rest:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body}
            path = f"/a2a/{bob.uid}"
        for door in ("a2a", "native"):
            with monkeypatch.context() as patch:

                async def published(*given: Any, patch: Any = patch, **more: Any) -> Any:
                    stored = await publish(*given, **more)
                    if given[0] != subjects.inbox(bob.uid, room.parts.owner.uid):
                        return stored
                    # From here on, for this one call.
                    if full:
                        patch.setattr("postroom.store.database.QUEUE_LIMIT", 0)
                    patch.setattr("postroom.store.database.CALL_TIMEOUT", 0.0)
                    database = room.parts.database
                    run = database._run
                    patch.setattr(database, "_here", None)
                    patch.setattr(
                        database, "_run", lambda t, r, w, _=0.0: run(t, r, w, 0.0), raising=False
                    )
                    return stored

                patch.setattr(bus, "publish", published)
                if door == "a2a":
                    answer = await room.api.post(path, json=body, headers=VERSION)
                    said = answer.json()["error"]["message"]
                else:
                    made = {"to": bob.agent.nick, "text": "more", "key": "k1"}
                    answer = await room.api.post("/v1/tasks", json=made)
                    said = answer.json()["detail"]
            assert answer.status_code == 503, answer.text
            named = re.search(r"task ([0-9a-f]{32}) is stored|stored, as task ([0-9a-f]{32})", said)
            assert named is not None, said
            await room.folded("INBOX")
            found = await room.api.get(f"/v1/tasks/{named[1] or named[2]}")
            assert found.status_code == 200, found.text


async def test_the_short_id_of_a_task_just_stored_is_waited_for(
    shared: tuple[TaskRoom, Hold], monkeypatch: pytest.MonkeyPatch
):
    whole, hold = shared
    async with emptied(whole) as room:
        bob = await room.worker("bob")
        async with behind(hold, monkeypatch):
            made = await room.api.post("/v1/tasks", json={"to": bob.agent.nick, "text": "more"})
            assert made.status_code == 201
            found = await room.api.get(f"/v1/tasks/{made.json()['id'][:8]}")
        assert found.status_code == 200, found.text
