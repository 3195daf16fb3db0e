"""Tasks for agents of other people: a post room's control plane, and servers of the A2A SDK on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import (
    DatabaseAway,
    DatabaseBusy,
    PostroomError,
    RequestTimeout,
    StateUnwritable,
    StoreLocked,
)
from postroom.remote.task import Patience, RemoteTask
from postroom.remote.work import AT_ONCE
from tests.control.taskroom import SECONDS, TaskRoom, task_room
from tests.remote.foreign import Foreign, foreign
from tests.remote.foreign_process import foreign_process
from tests.remote.scripted import (
    Asked,
    Script,
    Scripted,
    agent,
    answer,
    closing,
    error,
    events,
    losing,
    reset,
    result,
    scripted,
    silent,
)

pytestmark = pytest.mark.anyio

QUICK = Patience(
    away=0.4, retry=0.01, longest_retry=0.05, first=0.05, longest=0.1, asking=0.1, cancel=2.0
)


@pytest.fixture(scope="module")
async def servers() -> AsyncGenerator[dict[str, Foreign]]:
    async with AsyncExitStack() as stack:
        yield {
            "streams": await stack.enter_async_context(foreign(name="Poet")),
            "polled": await stack.enter_async_context(foreign(name="Polled", streaming=False)),
            "old": await stack.enter_async_context(foreign(("/rpc", "JSONRPC", "0.3"), name="Old")),
        }


@pytest.fixture(scope="module")
async def script() -> AsyncGenerator[Scripted]:
    async with scripted() as served:
        yield served


@pytest.fixture(scope="module")
async def room(
    tmp_path_factory: pytest.TempPathFactory, servers: dict[str, Foreign], script: Scripted
) -> AsyncGenerator[TaskRoom]:
    ports = [each.url.rpartition(":")[2] for each in (*servers.values(), script)]
    private = tuple(f"127.0.0.1:{port}" for port in ports)
    async with task_room(tmp_path_factory.mktemp("room"), egress_private=private) as running:
        running.parts.remote_work.patience = QUICK
        yield running


class House:
    def __init__(self, room: TaskRoom) -> None:
        self.room = room
        self.added: list[str] = []

    async def add(self, url: str, status: int = 201, **more: Any) -> dict[str, Any]:
        answered = await self.room.api.post("/v1/agents/remote", json={"url": url, **more})
        assert answered.status_code == status, answered.text
        if status == 201:
            self.added.append(answered.json()["uid"])
        return answered.json()

    async def until(self, task: dict[str, Any], *states: str) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            seq = 0
            while True:
                found = await self.room.get(f"/{task['id']}", wait="changed", after=seq, timeout=5)
                if found["state"] in states:
                    return found
                seq = found["seq"]

    async def ended(self, task: dict[str, Any]) -> dict[str, Any]:
        return await self.room.get(f"/{task['id']}", wait="final", timeout=SECONDS)


@pytest.fixture
async def house(room: TaskRoom, servers: dict[str, Foreign]) -> AsyncGenerator[House]:
    for server in servers.values():
        server.agent.gate.clear()
        server.agent.begun.clear()
        server.seen.clear()
        server.keys.clear()
    house = House(room)
    yield house
    for server in servers.values():
        server.agent.gate.set()
    for uid in house.added:
        await room.api.delete(f"/v1/agents/{uid}")


@pytest.fixture(params=["streams", "polled", "old"])
def server(request: pytest.FixtureRequest, servers: dict[str, Foreign]) -> Foreign:
    return servers[request.param]


def text_of(task: dict[str, Any]) -> str:
    return "".join(artifact["text"] for artifact in task["artifacts"])


@pytest.mark.requirement("remote-tasks")
async def test_a_task_goes_there_and_its_result_comes_back(house: House, server: Foreign):
    made = await house.add(server.url)
    assert made["kind"] == "external"
    assert made["nick"] == server.card.name.lower()
    assert made["online"]
    assert made["card"]["skills"][0]["id"] == "write"
    task = await house.ended(await house.room.delegate(f"@{made['nick']}", "a poem"))
    assert (task["state"], task["status_text"]) == ("completed", "done")
    assert text_of(task) == "one a poem"
    assert task["worker"]["nick"] == made["nick"]
    again = await house.add(server.url)
    assert (again["uid"], again["added"]) == (made["uid"], False)


@pytest.mark.requirement("remote-tasks")
async def test_a_question_is_answered_here_and_the_answer_goes_there(house: House, server: Foreign):
    made = await house.add(server.url)
    task = await house.room.delegate(made["uid"], "ask me")
    asking = await house.until(task, "input-required")
    assert asking["status_text"] == "which one?"
    await house.room.post(f"/{task['id']}/answer", text="the red one")
    done = await house.ended(task)
    assert done["state"] == "completed"
    assert "the red one" in text_of(done)


@pytest.mark.requirement("remote-tasks")
async def test_a_cancel_here_cancels_there(house: House, server: Foreign):
    made = await house.add(server.url)
    task = await house.room.delegate(made["uid"], "wait for me")
    await server.agent.begun.wait()
    running = await house.until(task, "working")
    assert running["state"] == "working"
    async with asyncio.timeout(SECONDS):
        while True:
            how = (await house.room.get(f"/{task['id']}")).get("followed", "")
            if how.startswith("followed by " + ("stream" if server.streams else "poll every")):
                break
    before = len(server.agent.canceled)
    canceled = await house.room.post(f"/{task['id']}/cancel", reason="enough")
    assert canceled["state"] == "canceled"
    async with asyncio.timeout(SECONDS):
        while len(server.agent.canceled) == before:  # noqa: ASYNC110 (the SDK tells nobody)
            await asyncio.sleep(0.01)


async def test_a_failure_there_is_a_failure_here(house: House, server: Foreign):
    made = await house.add(server.url)
    task = await house.ended(await house.room.delegate(made["uid"], "fail please"))
    assert (task["state"], task["status_text"]) == ("failed", "cannot do that")


# ── the other side in trouble ────────────────────────────────────────────────────────────────────────


def task(state: str = "WORKING", **more: Any) -> dict[str, Any]:
    return {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **more}


def calls(server: Scripted) -> list[str]:
    return [asked.call["method"] for asked in server.asked if asked.method == "POST"]


@pytest.fixture
async def there(house: House, script: Scripted) -> Any:
    """Adds the scripted agent, whose calls are answered as the test says."""

    async def add(*scripts: Script, streaming: bool = False, **more: Any) -> dict[str, Any]:
        card = {
            "name": "Odd \x1b[2J\u202e one",
            "description": 7,
            "skills": [{"id": "x"}, "y", {"id": "x"}],
            "capabilities": {"streaming": streaming},
            "supportedInterfaces": [
                {"url": f"{script.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
        }
        script.then(agent(card, *scripts))
        return await house.add(script.url, **more)

    return add


@pytest.mark.requirement("remote-tasks")
@pytest.mark.parametrize(
    "scripts, why",
    [
        ((answer(400, "no"),), "the server answered 400"),
        ((answer(401),), "the server answered 401"),
        ((error(-32602, "bad part"),), "INVALID_PARAMS: bad part"),
        ((answer(200, "<html>"),), "not JSON"),
        ((result({"x": 1}),), "neither a task nor a message"),
        ((result({"task": {"id": "t1", "status": {"state": "DONE"}}}),), "no state of a task"),
        ((result({"task": {"status": {"state": "TASK_STATE_WORKING"}}}),), "no id of its task"),
        ((result({"task": task()}), error(-32001, "gone")), "TASK_NOT_FOUND: gone"),
        ((result({"task": task()}), answer(404)), "answered 404"),
        ((reset(),), "could not be reached for"),
        ((closing(),), "could not be reached for"),
        ((answer(503),), "could not be reached for"),
        ((answer(429, retry_after="1"),), "could not be reached for"),
        ((answer(302, location="http://127.0.0.1:1/"),), "no redirect is followed"),
        (
            (
                result(
                    {"task": task("COMPLETED", artifacts=[{"parts": [{"text": "x" * 500_000}]}])}
                ),
            ),
            "",
        ),
        (
            (
                result(
                    {
                        "task": task(
                            artifacts=[
                                {"artifactId": str(n), "parts": [{"text": "x"}]} for n in range(300)
                            ]
                        )
                    }
                ),
            ),
            "more than 256 artifacts",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_agent_in_trouble_fails_its_task_with_the_reason(
    house: House, there: Any, scripts: tuple[Script, ...], why: str
):
    made = await there(*scripts)
    assert made["nick"] == "odd-one" or made["nick"].startswith("odd-")
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert done["state"] == "failed", done
    assert why in done["status_text"]


@pytest.mark.requirement("remote-tasks")
@pytest.mark.parametrize(
    "foreign",
    [
        {
            "statusUpdate": {
                "taskId": "t2",
                "contextId": "c1",
                "status": task("COMPLETED")["status"],
            }
        },
        {
            "artifactUpdate": {
                "taskId": "t2",
                "artifact": {"artifactId": "a", "parts": [{"text": "x"}]},
            }
        },
        {"task": task("COMPLETED", id="t2")},
        {
            "message": {
                "messageId": "m",
                "taskId": "t2",
                "role": "ROLE_AGENT",
                "parts": [{"text": "x"}],
            }
        },
    ],
    ids=lambda event: next(iter(event)),
)
async def test_what_it_says_of_another_task_is_not_taken_for_this_one(
    house: House, there: Any, foreign: dict[str, Any]
):
    own = {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": task()["status"]}}
    made = await there(events({"task": task()}, own, foreign), streaming=True)
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert done["state"] == "failed", done
    assert "another task" in done["status_text"]
    assert not done["artifacts"]


@pytest.mark.requirement("remote-tasks")
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_server_that_is_killed_in_the_middle_of_an_answer_is_asked_again(
    house: House, there: Any, script: Scripted, streaming: bool
):
    half = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"

    async def killed(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(half)

    working, done = result({"task": task()}), task("COMPLETED")
    stream = events({"task": task()}, cut=True), result(task()), events({"task": done})
    polled = killed, working, killed, result(done)
    made = await there(*(stream if streaming else polled), streaming=streaming)
    ended = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert ended["state"] == "completed", calls(script)


@pytest.mark.requirement("remote-tasks")
@pytest.mark.requirement("mend-closed-repeated")
async def test_a_peer_that_closes_without_an_answer_gets_the_request_again(
    house: House, there: Any, script: Scripted
):
    made = await there(
        closing(), closing(), result({"task": task()}), closing(), result(task("COMPLETED"))
    )
    ended = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert ended["state"] == "completed", calls(script)
    sent = [each for each in script.asked if each.method == "POST"][:3]
    assert len({each.message_id for each in sent}) == 1


@pytest.mark.requirement("remote-tasks")
async def test_an_answer_whose_reply_was_lost_is_not_refused_the_second_time(
    house: House, there: Any, script: Scripted
):
    """The other side takes it, and refuses to take it again, as most servers do."""
    asks = task("INPUT_REQUIRED")
    named: list[str] = []

    async def answered(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.call["method"] == "GetTask":
            said = [{"messageId": each, "role": "ROLE_USER", "parts": []} for each in named]
            now = task("COMPLETED", history=said) if named else asks
            await result(now)(asked, writer)
        elif "taskId" not in asked.call["params"]["message"]:
            await result({"task": asks})(asked, writer)
        elif named:
            await error(-32004, "the task is completed")(asked, writer)
        else:
            named.append(asked.message_id)  # and closes

    made = await there(answered)
    given = await house.room.delegate(made["uid"], "x")
    await house.until(given, "input-required")
    await house.room.post(f"/{given['id']}/answer", text="the red one")
    assert (await house.ended(given))["state"] == "completed", calls(script)


@pytest.mark.requirement("remote-tasks")
@pytest.mark.requirement("mend-closed-repeated")
async def test_a_proxy_that_loses_an_answer_fails_no_task(
    tmp_path: Path, servers: dict[str, Foreign]
):
    for name in ("polled", "old", "streams"):
        async with (
            losing(servers[name].url, "/rpc") as (url, passed),
            task_room(tmp_path / name, egress_private=(url.removeprefix("http://"),)) as room,
        ):
            room.parts.remote_work.patience = QUICK
            house = House(room)
            made = await house.add(url)
            ended = await house.ended(await room.delegate(made["uid"], "a poem"))
            assert (ended["state"], text_of(ended)) == ("completed", "one a poem")
            sent = [each for each in passed if each.method == "POST" and b"messageId" in each.body]
            assert len({each.message_id for each in sent}) == 1


@pytest.mark.requirement("remote-tasks")
@pytest.mark.parametrize("version", ["0.3", "1.0"])
@pytest.mark.requirement("mend-closed-repeated")
async def test_a_server_that_is_killed_at_work_gets_the_request_again(tmp_path: Path, version: str):
    with socket.socket() as kept:  # so that nobody takes the port while the server is down
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        async with task_room(tmp_path, egress_private=(f"127.0.0.1:{port}",)) as room:
            room.parts.remote_work.patience = replace(QUICK, away=30.0)
            house = House(room)
            async with foreign_process(port, version, "hang") as at_work:
                made = await house.add(f"http://127.0.0.1:{port}")
                given = await room.delegate(made["uid"], "a poem")
                await at_work()
            async with foreign_process(port, version, "go"):
                ended = await house.ended(given)
    assert (ended["state"], text_of(ended)) == ("completed", "one a poem"), ended["status_text"]


@pytest.mark.requirement("remote-tasks")
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_deadline_ends_the_task_here_and_there(
    house: House, there: Any, script: Scripted, streaming: bool
):
    working = result({"task": task()})
    if streaming:
        working = events({"task": task()}, hold=asyncio.Event())
    by_method = {
        "SendMessage": working,
        "SendStreamingMessage": working,
        "GetTask": result(task()),
        "CancelTask": result(task("CANCELED")),
    }

    async def answered(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await by_method[asked.call["method"]](asked, writer)

    made = await there(answered, streaming=streaming, deadline=2.0)
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert done["state"] == "failed"
    assert "within its deadline of 2 s" in done["status_text"]
    assert "CancelTask" in calls(script)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "artifacts",
    [
        [{"artifactId": "a", "parts": [{"data": nested(60)}]}],
        [{"artifactId": "a", "parts": [{"data": nested(200)}]}],
        [{"artifactId": "a", "parts": [{"data": nested(900)}]}],
        [{"artifactId": {"x": []}, "name": 5, "parts": [{"text": "x", "metadata": None}]}],
        [{"artifactId": "a", "parts": {"x": 1}}, None, 7, {"parts": [{"text": 1}]}],
        {"x": 1},
        [{"artifactId": "\ud800", "name": "\0", "parts": [{"text": "\0\u202e"}]}],
    ],
)
async def test_no_answer_whatever_its_shape_ends_more_than_its_task(
    house: House, there: Any, artifacts: Any
):
    odd = task("COMPLETED", artifacts=artifacts, history=artifacts, metadata=artifacts)
    made = await there(result({"task": odd}))
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert done["state"] in {"completed", "failed"}
    assert "log of the post room" not in done["status_text"]
    await there(result({"task": task("COMPLETED")}))
    again = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert again["state"] == "completed"


class Faulty:
    """The database of a room, which can be away for the parts that follow tasks at other people's servers."""

    def __init__(self, room: TaskRoom) -> None:
        self.error: PostroomError | None = None
        self.refused = asyncio.Event()
        self._database = room.parts.database

    async def point(self, work: Any) -> Any:
        if self.error is not None:
            self.refused.set()
            raise self.error
        return await self._database.point(work)

    async def read(self, work: Any) -> Any:
        return await self._database.read(work)


@pytest.mark.requirement("remote-tasks")
@pytest.mark.parametrize(
    "error",
    [
        DatabaseAway("the database is away"),
        RequestTimeout("the database did not answer in time"),
        DatabaseBusy("too many calls wait for the database"),
        StateUnwritable("the disk is full"),
        StoreLocked("the database is locked"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("said", ["wait for me", "ask me"])
async def test_a_task_goes_on_after_a_fault_of_the_database(
    house: House, server: Foreign, monkeypatch: pytest.MonkeyPatch, error: Any, said: str
):
    made = await house.add(server.url)
    database = Faulty(house.room)
    monkeypatch.setattr(house.room.parts.remote_work, "_database", database)
    task = await house.room.delegate(made["uid"], said)
    if said == "ask me":
        await house.until(task, "input-required")
        house.room.parts.remote_work._lanes[made["uid"]].running[task["id"]].wake()
    else:
        await server.agent.begun.wait()
        await house.until(task, "working")
    database.error = error
    server.agent.gate.set()
    if said == "ask me":
        await house.room.post(f"/{task['id']}/answer", text="the red one")
    async with asyncio.timeout(SECONDS):
        await database.refused.wait()
    database.error = None
    done = await house.ended(task)
    assert (done["state"], done["status_text"]) == ("completed", "done")


@pytest.mark.requirement("remote-tasks")
async def test_a_start_says_a_cancel_again_though_the_database_is_away_for_a_moment(
    house: House, server: Foreign, monkeypatch: pytest.MonkeyPatch
):
    made = await house.add(server.url)
    task = await house.room.delegate(made["uid"], "wait for me")
    await server.agent.begun.wait()
    await house.until(task, "working")
    await house.room.post(f"/{task['id']}/cancel", reason="enough")
    faults, said = [DatabaseAway("away")] * 2, asyncio.Event()

    async def cancel_there(self: RemoteTask) -> None:
        if self.task == task["id"]:
            if faults:
                raise faults.pop()
            said.set()

    monkeypatch.setattr(RemoteTask, "cancel_there", cancel_there)
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        await house.room.parts.remote_work._look(group, first=True)
        await said.wait()


async def test_tasks_of_an_agent_that_was_removed_meanwhile_end_nothing_else(
    house: House, servers: dict[str, Foreign]
):
    server = servers["streams"]
    made = await house.add(server.url)
    for n in range(AT_ONCE + 3):
        await house.room.delegate(made["uid"], f"wait {n}")
    await server.agent.begun.wait()
    house.added.remove(made["uid"])
    await house.room.api.delete(f"/v1/agents/{made['uid']}")
    server.agent.gate.set()
    other = await house.add(servers["polled"].url)
    done = await house.ended(await house.room.delegate(other["uid"], "a poem"))
    assert done["state"] == "completed"


async def test_a_request_that_went_out_before_a_crash_is_found_again(
    house: House, there: Any, script: Scripted
):
    """The other side does not know a `messageId` again, as most servers do not."""
    made = await there(silent)
    given = await house.room.delegate(made["uid"], "x")
    await script.until(2)  # its card, and the request
    named = script.asked[-1].message_id
    work = house.room.parts.remote_work
    lane = work._lanes[made["uid"]]
    lane.work[given["id"]].cancel()  # as a crash before the answer
    await asyncio.wait([lane.work[given["id"]]])
    sent = task(history=[{"messageId": named, "role": "ROLE_USER", "parts": [{"text": "x"}]}])
    by_method = {
        "ListTasks": result({"tasks": [task(id="other"), sent]}),
        "GetTask": result(task("COMPLETED")),
    }

    async def answered(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await by_method[asked.call["method"]](asked, writer)

    script.then(answered)
    remote = house.room.parts.remotes.of(made["uid"])
    again = RemoteTask(
        work, remote, house.room.parts.remotes.client(remote), given["id"], resumed=True
    )
    await again.run()
    assert (await house.ended(given))["state"] == "completed"
    assert calls(script)[0] == "ListTasks"
    assert "SendMessage" not in calls(script)


async def test_a_silent_agent_fails_at_the_deadline(house: House, there: Any):
    made = await there(silent, deadline=0.5)
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert "within its deadline" in done["status_text"]


async def test_a_server_whose_card_names_no_text_is_sent_text_all_the_same(
    house: House, script: Scripted
):
    card = {
        "name": "Modes",
        "defaultInputModes": ["application/json"],
        "skills": [{"id": "x", "inputModes": ["image/png"]}],
        "supportedInterfaces": [
            {"url": f"{script.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
    }
    script.then(agent(card, result({"task": task("COMPLETED")})))
    made = await house.add(script.url)
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert done["state"] == "completed"


@pytest.mark.parametrize("last", ["statusUpdate", "task", "task alone"])
async def test_an_artifact_that_only_the_whole_task_shows_is_fetched_at_the_end(
    house: House, there: Any, script: Scripted, last: str
):
    found = task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "the result"}]}])
    end = {"taskId": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}
    ended = {"statusUpdate": end} if last == "statusUpdate" else {"task": task("COMPLETED")}
    stream = events(ended) if last == "task alone" else events({"task": task()}, ended)
    made = await there(stream, result(found), streaming=True)
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert text_of(done) == "the result"
    assert calls(script).count("GetTask") == 1


async def test_what_it_says_passes_whole_and_its_blobs_are_not_ours(house: House, there: Any):
    parts = [{"data": {"a": [1]}}, {"url": "blob:sha256:" + "0" * 64, "filename": "x.txt"}]
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}
    made = await there(result({"message": said}))
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert done["state"] == "completed"
    assert done["status_parts"][0] == parts[0]
    assert "x.txt stays with the agent" in done["status_parts"][1]["text"]


async def test_a_message_goes_out_with_an_id_of_the_task_and_with_its_files(
    house: House, there: Any, script: Scripted
):
    made = await there(answer(500), result({"task": task("COMPLETED")}))
    content = b"a file"
    sent = await house.room.api.put(f"/v1/blobs/{sha256(content).hexdigest()}", content=content)
    assert sent.is_success
    parts = [{"text": "x"}, {"url": sent.json()["url"], "filename": "f"}]
    await house.ended(await house.room.post("", to=made["uid"], parts=parts))
    messages = [a.call["params"]["message"] for a in script.asked if a.method == "POST"]
    assert len(messages) == 2
    assert messages[0] == messages[1]
    assert messages[0]["parts"] == [{"text": "x"}, {"raw": "YSBmaWxl", "filename": "f"}]


# ── who may, and where to ────────────────────────────────────────────────────────────────────────────


async def test_a_private_address_is_refused_and_so_is_what_is_no_agent(
    house: House, script: Scripted
):
    for url, status in (
        ("http://127.0.0.1:1/x", 403),
        ("http://169.254.169.254/latest", 403),
        ("http://[::1]:1", 403),
        ("ftp://x.example", 422),
        ("https://a:b@x.example", 422),
    ):
        await house.add(url, status)
    script.then(answer(404))
    await house.add(script.url, 404)
    script.then(answer(200, "<html>"))
    await house.add(script.url, 502)
    script.then(answer(401))
    refused = await house.add(script.url, 403)
    assert f"credential add NAME --host {script.url}" in refused["remedy"]
    moved = {
        "name": "x",
        "supportedInterfaces": [
            {"url": "http://127.0.0.1:1/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
    }
    script.then(answer(200, json.dumps(moved)))
    made = await house.add(
        script.url
    )  # its card is public; what it names is refused when it is called
    done = await house.ended(await house.room.delegate(made["uid"], "x"))
    assert done["state"] == "failed"
    assert "not an address of the public internet" in done["status_text"]


@pytest.mark.requirement("egress-key-outside")
async def test_a_credential_goes_to_its_host_alone_and_is_shown_nowhere(
    house: House, servers: dict[str, Foreign], script: Scripted
):
    server = servers["streams"]
    server.keys.add("s3cret")
    await house.add(server.url, 403)
    refused = await house.add(server.url, 422, credential="nobody")
    assert "there is no credential 'nobody'" in refused["detail"]
    body = {"name": "poet", "host": server.url, "secret": "s3cret", "header": "X-Key: {secret}"}
    await house.room.api.post("/v1/credentials", json={**body, "replace": True})
    made = await house.add(server.url, credential="poet")
    task = await house.ended(await house.room.delegate(made["uid"], "a poem"))
    assert task["state"] == "completed"
    assert all(headers.get("x-key") == "s3cret" for _, headers in server.seen[-2:])
    everything = json.dumps([made, task, (await house.room.api.get("/v1/credentials")).json()])
    assert "s3cret" not in everything
    script.then(agent({"name": "x", "url": script.url}, answer(500)))
    await house.add(script.url, 422, credential="poet")
    assert all("s3cret" not in str(asked.headers) for asked in script.asked)


async def test_an_agent_that_is_removed_has_its_tasks_canceled_there(
    house: House, servers: dict[str, Foreign]
):
    server = servers["streams"]
    made = await house.add(server.url)
    task = await house.room.delegate(made["uid"], "wait for me")
    await server.agent.begun.wait()
    await house.until(task, "working")
    before = len(server.agent.canceled)
    house.added.remove(made["uid"])
    await house.room.api.delete(f"/v1/agents/{made['uid']}")
    assert (await house.ended(task))["state"] == "failed"
    async with asyncio.timeout(SECONDS):
        while len(server.agent.canceled) == before:  # noqa: ASYNC110 (the SDK tells nobody)
            await asyncio.sleep(0.01)


async def test_one_agent_works_on_a_few_tasks_and_the_others_wait(
    house: House, servers: dict[str, Foreign]
):
    server = servers["streams"]
    made = await house.add(server.url)
    tasks = [await house.room.delegate(made["uid"], f"wait {n}") for n in range(AT_ONCE + 3)]
    for each in tasks[:AT_ONCE]:
        await house.until(each, "working")
    lane = house.room.parts.remote_work._lanes[made["uid"]]
    assert (len(lane.running), len(lane.waiting)) == (AT_ONCE, 3)
    server.agent.gate.set()
    for each in tasks:
        assert (await house.ended(each))["state"] == "completed"
