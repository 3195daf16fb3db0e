"""Workers that ask each other by A2A: real sidecars, the ephemeral path between them, the SDK as the client."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import Client
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    TaskState,
    TaskStatus,
)

from library.whole import WHOLE
from postroom.bus.nats import NatsBus
from postroom.errors import NoResponders
from postroom.protocol import subjects
from postroom.sidecar.a2a.changes import SEQUENCE
from postroom.sidecar.a2a.serving import EACH, MAX_REQUEST, rpc_caller
from postroom_a2a.binding.frames import (
    Request,
    Response,
    decode_request,
    encode_request,
    encode_result,
    encode_stream_frame,
)
from postroom_a2a.ecma_json import dumps
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.task_state import TaskState as State
from tests.prefork import Forked
from tests.sidecar.worker_rig import PATIENCE, WorkerRig

pytestmark = pytest.mark.anyio

# Shows where its API is; does a task in steps, each when the named pipe of the test says so.
PROGRAM = """
for line in lines():
    if line["type"] == "hello":
        say(type="post", text=line["nick"] + " " + line["api"])
    if line["type"] == "task":
        with open("steps") as steps:
            for step in steps:
                say(**json.loads(step))
"""


@dataclass
class Neighbour:
    """A worker that runs, and its HTTP address."""

    rig: WorkerRig
    process: Forked
    api: str

    async def steps(self, *steps: dict[str, Any]) -> None:
        """Have the agent say these, when it was handed its task."""
        text = "".join(json.dumps(step) + "\n" for step in steps)
        await asyncio.to_thread((self.rig.folder / "steps").write_text, text)


@dataclass
class Neighbours:
    """Two workers, `reader` and `writer`, and a client of reader's for writer."""

    reader: Neighbour
    writer: WorkerRig
    http: httpx.AsyncClient
    client: Client

    def ask(self, text: str) -> SendMessageRequest:
        """A request of reader's."""
        parts = [Part(text=text)]
        new = Message(message_id=secrets.token_hex(8), role=Role.ROLE_USER, parts=parts)
        return SendMessageRequest(message=new)

    def stream(self, text: str) -> AsyncGenerator[StreamResponse]:
        """What is streamed of a new task."""
        stream = self.client.send_message(self.ask(text))
        assert isinstance(stream, AsyncGenerator)
        return stream

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        """A call of reader's to writer by hand; its answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        url = f"{self.reader.api}/a2a/agents/writer"
        answer = await self.http.post(url, json=body, headers={"A2A-Version": "1.0"})
        return answer.json()


@asynccontextmanager
async def running(rig: WorkerRig, nick: str) -> AsyncGenerator[Neighbour]:
    """The rig's worker, running."""
    if not (rig.folder / "steps").exists():
        rig.fifo("steps")
    before = len(posts(rig, nick))
    async with rig.sidecar(PROGRAM, nick=nick, cancel_grace=0.1) as process:
        api = (await rig.tap.until(lambda: posts(rig, nick)[before:]))[0]
        await presence(rig)
        yield Neighbour(rig, process, api)


def posts(rig: WorkerRig, nick: str) -> list[str]:
    return [text.split()[1] for text in rig.posts() if text.split()[0] == nick]


async def presence(rig: WorkerRig) -> None:
    await rig.tap.until(rig.states)


@asynccontextmanager
async def neighbours(home: WorkerRig) -> AsyncGenerator[Neighbours]:
    """Reader running, writer not."""
    writer = await home.neighbour("writer")
    async with running(home, "reader") as reader, httpx.AsyncClient(trust_env=False) as http:
        resolver = A2ACardResolver(http, f"{reader.api}/a2a/agents/writer")
        card = await resolver.get_agent_card()
        card.capabilities.streaming = True
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        yield Neighbours(reader, writer, http, client)


def state(status: TaskStatus) -> str:
    return TaskState.Name(status.state).removeprefix("TASK_STATE_")


def shown(event: StreamResponse) -> str:
    match event.WhichOneof("payload"):
        case "task":
            return f"task {state(event.task.status)}"
        case "status_update":
            status = event.status_update.status
            text = "".join(part.text for part in status.message.parts)
            return f"{state(status)} {text}".strip()
        case _:
            return f"artifact {event.artifact_update.artifact.parts[0].text}"


HALF = {"type": "update", "text": "half"}
PIECE = {"type": "artifact", "text": "42"}
DONE = {"type": "complete", "text": "done"}
SHOWN = ["task SUBMITTED", "WORKING", "WORKING half", "artifact 42", "COMPLETED done"]


async def collected(stream: AsyncGenerator[StreamResponse]) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        return [shown(event) async for event in stream]


@pytest.mark.requirement("client-stream-resumes")
async def test_a_worker_streams_another_workers_task_each_change_once_in_order(home: WorkerRig):
    async with neighbours(home) as there, running(there.writer, "writer") as writer:
        home.control.silent = True  # so what comes is what writer says itself
        stream = there.stream("add")
        collecting = asyncio.create_task(collected(stream))
        await writer.steps(HALF, PIECE, DONE)
        assert await collecting == SHOWN


def memory(process: Forked) -> int:
    """Bytes that a process has in memory."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@pytest.mark.requirement("core-busy-told")
async def test_a_reader_that_stands_still_does_not_grow_the_server_and_misses_nothing(
    home: WorkerRig,
):
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="update", text="0")
            open("go").read()
            for number in range(1, 301):
                say(type="artifact", id="a", text=str(number) + "x" * 100_000)
            say(type="complete", text="done")
    """
    home.fifo("go")
    async with home.sidecar(program) as process:
        task = await home.request("write")
        await home.task(task, State.WORKING)
        caller = rpc_caller(home.alice.mailbox, home.alice.uid, home.worker)
        request = Request("1", "SubscribeToTask", {"id": task})
        stream = caller.stream(request, timeout=PATIENCE)
        await anext(stream)
        before = memory(process)
        await asyncio.to_thread((home.folder / "go").write_text, "")
        await home.tap.until(
            lambda: [m for m in home.tap.of("tasks") if m.subject.endswith("completed")]
        )
        assert memory(process) - before < 15_000_000  # of 30 MB that were said
        async with asyncio.timeout(PATIENCE):
            results = [response.result async for response in stream]
        await caller.close()
    pieces = [each["artifactUpdate"] for each in results if "artifactUpdate" in each]
    numbers = [int(each["artifact"]["parts"][0]["text"].rstrip("x")) for each in pieces]
    assert numbers == list(range(1, 301))
    assert results[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.requirement("task-kill-requester-told")
async def test_what_a_worker_says_live_cannot_end_a_task_or_hide_what_is_stored(home: WorkerRig):
    async with neighbours(home) as there:
        credential = there.writer.credential
        bus = await home.bus.connect(credential, there.writer.worker)
        said = asyncio.Event()

        async def lie(frame: Any) -> None:
            call = decode_request(frame.data)
            task = call.params["id"]
            for state, sequence in (("WORKING", 10**9), ("COMPLETED", 10**9 + 1)):
                number = {SEQUENCE: {"after": 0, "sequence": sequence}}
                update = {"taskId": task, "contextId": task, "metadata": number}
                update["status"] = {"state": f"TASK_STATE_{state}"}
                result = encode_result(call.id, dumps({"statusUpdate": update}))
                await bus.connection.publish(frame.reply, encode_stream_frame(result))
            said.set()

        await bus.connection.subscribe(subjects.rpc(there.writer.worker, "*"), cb=lie)
        stream = there.stream("add")
        assert shown(await anext(stream)) == "task SUBMITTED"
        collecting = asyncio.create_task(collected(stream))
        await said.wait()
        await bus.close()
        async with running(there.writer, "writer") as writer:
            await writer.steps(HALF, PIECE, DONE)
            rest = await collecting
        assert rest[-3:] == SHOWN[-3:]
        assert sum(each.startswith("COMPLETED") for each in rest) == 1


@pytest.mark.requirement("task-kill-requester-told")
@pytest.mark.requirement("client-stream-resumes")
async def test_a_task_for_a_worker_that_does_not_run_is_streamed_when_it_does(home: WorkerRig):
    async with neighbours(home) as there:
        stream = there.stream("add")
        assert shown(await anext(stream)) == "task SUBMITTED"
        collecting = asyncio.create_task(collected(stream))
        async with running(there.writer, "writer") as writer:
            await writer.steps(HALF, PIECE, DONE)
            assert await collecting == SHOWN[1:]


@pytest.mark.requirement("client-stream-resumes")
async def test_a_stream_goes_on_by_what_is_stored_when_the_servers_sidecar_is_killed(
    home: WorkerRig,
):
    async with neighbours(home) as there:
        async with running(there.writer, "writer") as writer:
            stream = there.stream("add")
            first = [shown(await anext(stream)), shown(await anext(stream))]
            steps = asyncio.create_task(writer.steps(HALF))
            first.append(shown(await anext(stream)))
            await steps
            assert first == SHOWN[:3]
            os.kill(writer.process.pid, signal.SIGKILL)
            await writer.process.wait()
        collecting = asyncio.create_task(collected(stream))
        async with running(there.writer, "writer") as writer:
            await writer.steps(PIECE, DONE)
            assert await collecting == ["WORKING begun again: its worker ended", *SHOWN[3:]]


async def test_a_call_to_a_worker_that_does_not_run_is_answered_at_once(home: WorkerRig):
    async with neighbours(home) as there:
        error = (await there.call("GetTask", {"id": "0" * 32}))["error"]
        assert error["data"][0]["metadata"]["postroom"] == NoResponders.code
        error = (await there.call("Dance"))["error"]
        assert error["data"][0]["metadata"]["postroom"] == NoResponders.code


async def rpc(bus: NatsBus, worker: str, method: str, params: Any) -> Response:
    caller = rpc_caller(bus.mailbox, bus.uid, worker)
    try:
        request = Request(secrets.token_hex(4), method, params)
        if method in {"SubscribeToTask", "SendStreamingMessage"}:
            async for response in caller.stream(request, timeout=PATIENCE):
                return response
        return await caller.call(request, timeout=PATIENCE)
    finally:
        await caller.close()


def code(response: Response) -> int:
    assert isinstance(response.error, RpcError)
    return response.error.code


@pytest.mark.requirement("task-seen-by-parties")
async def test_who_asked_reads_follows_and_cancels_a_task_and_a_third_worker_does_not(
    home: WorkerRig,
):
    program = "for line in lines(): pass"
    async with home.sidecar(program, cancel_grace=0.1):
        await presence(home)
        third = await home.bus.agent()
        task = await home.request("hold")
        for method in ("GetTask", "SubscribeToTask", "CancelTask"):
            theirs = await rpc(third, home.worker, method, {"id": task})
            none = await rpc(third, home.worker, method, {"id": "0" * 32})
            assert code(theirs) == code(none) == Code.TASK_NOT_FOUND
            assert str(theirs.error) == str(none.error)
        assert (await rpc(third, home.worker, "ListTasks", {})).result["tasks"] == []

        (listed,) = (await rpc(home.alice, home.worker, "ListTasks", {})).result["tasks"]
        assert listed["id"] == task
        assert (await rpc(home.alice, home.worker, "GetTask", {"id": task})).result["id"] == task
        first = await rpc(home.alice, home.worker, "SubscribeToTask", {"id": task})
        assert first.result["task"]["id"] == task
        canceled = await rpc(home.alice, home.worker, "CancelTask", {"id": task})
        assert canceled.result["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("core-busy-told")
async def test_one_caller_cannot_use_up_what_all_callers_share(home: WorkerRig):
    async with home.sidecar("for line in lines(): pass"):
        await presence(home)
        task = await home.request("hold")
        caller = rpc_caller(home.alice.mailbox, home.alice.uid, home.worker)
        streams = []
        for number in range(EACH + 1):
            request = Request(str(number), "SubscribeToTask", {"id": task})
            streams.append(caller.stream(request, timeout=PATIENCE))
        firsts = [await anext(stream) for stream in streams]
        assert [first.error is None for first in firsts] == [True] * EACH + [False]
        assert code(firsts[-1]) == Code.SERVER_BUSY
        third = await home.bus.agent()
        assert (await rpc(third, home.worker, "ListTasks", {})).result["tasks"] == []
        for stream in streams:
            await stream.aclose()
        await caller.close()


@pytest.mark.requirement("core-busy-told")
async def test_a_page_of_large_tasks_has_as_many_as_fit_a_message(home: WorkerRig):
    async with home.sidecar("for line in lines(): pass"):
        await presence(home)
        tasks = [await home.request("x" * 300_000) for _ in range(5)]
        await home.task(tasks[0], State.WORKING)
        for task in tasks[1:]:
            await home.task(task, State.SUBMITTED)
        found: list[str] = []
        token = ""
        while token or not found:
            listed = (await rpc(home.alice, home.worker, "ListTasks", {"pageToken": token})).result
            assert len(listed["tasks"]) == min(2, 5 - len(found))
            assert listed["totalSize"] == 5
            found += [task["id"] for task in listed["tasks"]]
            token = listed["nextPageToken"]
        assert sorted(found) == sorted(tasks)


@pytest.mark.requirement("task-seen-by-parties")
async def test_a_task_cannot_be_begun_over_the_ephemeral_path(home: WorkerRig):
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    async with home.sidecar("for line in lines(): pass"):
        await presence(home)
        for method in ("SendMessage", "SendStreamingMessage"):
            refused = await rpc(home.alice, home.worker, method, {"message": message})
            assert code(refused) == Code.UNSUPPORTED_OPERATION
            assert refused.error is not None
            (info,) = refused.error.data
            assert info["metadata"]["inbox"] == subjects.inbox(home.worker, home.alice.uid)
        old = await rpc(home.alice, home.worker, "message/send", {"message": message})
        assert code(old) == Code.METHOD_NOT_FOUND


@pytest.mark.requirement("task-seen-by-parties")
async def test_a_request_whose_answer_would_go_to_somebody_else_gets_none(home: WorkerRig):
    async with home.sidecar("for line in lines(): pass"):
        await presence(home)
        third = await home.bus.agent()
        heard: list[str] = []

        async def take(frame: Any) -> None:
            heard.append(frame.subject)

        await third.connection.subscribe(f"_I.{third.uid}.*.*", cb=take)
        payload = encode_request(Request("1", "ListTasks"))
        subject = subjects.rpc(home.worker, home.alice.uid)
        for reply in (
            f"_I.{third.uid}.{home.worker}.x",
            f"_I.{home.alice.uid}.{third.uid}.x",
            f"_I.{home.alice.uid}.{home.worker}.x.y",
            "worker.x.inbox.y",
            "",
        ):
            await home.alice.connection.publish(subject, payload, reply)
        own = f"_I.{home.alice.uid}.{home.worker}.x"
        await home.alice.connection.publish(subject, payload + b" " * MAX_REQUEST, own)
        # What is asked after them is answered, so they were all read.
        assert (await rpc(home.alice, home.worker, "ListTasks", {})).result["tasks"] == []
        assert heard == []


@pytest.mark.requirement("a2a-http")
async def test_a_client_of_the_sdk_asks_any_worker_at_the_local_address(home: WorkerRig):
    async with neighbours(home) as there, running(there.writer, "writer") as writer:
        one = ClientFactory(ClientConfig(httpx_client=there.http, streaming=False)).create(
            await A2ACardResolver(
                there.http, f"{there.reader.api}/a2a/agents/writer"
            ).get_agent_card()
        )
        request = there.ask("add")
        sending = asyncio.create_task(collected_tasks(one, request))
        await writer.steps(PIECE, DONE)
        (task,) = await sending
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == "42"
        assert (await one.get_task(GetTaskRequest(id=task.id))).id == task.id
        listed = await one.list_tasks(ListTasksRequest())
        assert [each.id for each in listed.tasks] == [task.id]
        stream = there.stream("hold")
        held = (await anext(stream)).task.id
        await one.cancel_task(CancelTaskRequest(id=held))
        events = [shown(event) async for event in stream]
        assert events[-1].startswith("CANCELED")


async def collected_tasks(client: Client, request: SendMessageRequest) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        return [answer.task async for answer in client.send_message(request)]


ECHO = """
for line in lines():
    if line["type"] == "hello":
        say(type="post", text=line["nick"] + " " + line["api"])
    if line["type"] == "task":
        say(type="artifact", parts=line["parts"])
        say(type="complete", parts=line["parts"])
"""


@pytest.mark.requirement("a2a-parts-pass")
async def test_parts_of_every_kind_pass_through_an_agent_and_come_back_as_they_were(
    home: WorkerRig,
):
    async with home.sidecar(ECHO, nick="reader"), httpx.AsyncClient(trust_env=False) as http:
        (api,) = await home.tap.until(lambda: posts(home, "reader"))
        await presence(home)

        async def call(method: str, **params: Any) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = await http.post(f"{api}/a2a", json=body, headers={"A2A-Version": "1.0"})
            return answer.json()["result"]

        now = {"returnImmediately": True}
        sent = (await call("SendMessage", message=WHOLE, configuration=now))["task"]
        assert sent["history"] == [WHOLE]
        await home.task(sent["id"], State.COMPLETED)
        (listed,) = (await call("ListTasks", includeArtifacts=True))["tasks"]
        for task in (await call("GetTask", id=sent["id"]), listed):
            assert task["history"] == [WHOLE]
            assert task["artifacts"][0]["parts"] == WHOLE["parts"]
            assert task["status"]["message"]["parts"] == WHOLE["parts"]
