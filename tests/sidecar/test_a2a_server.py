"""The worker as an A2A server, with the official SDK as its client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import Client
from a2a.types import (
    CancelTaskRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from hypothesis import given
from hypothesis import strategies as st

from library.whole import WHOLE
from postroom.directory.cards import build_card
from postroom.errors import ContentNotTaken, Forbidden, NotFound
from postroom.http.server import HttpServer
from postroom.protocol.template import Template
from postroom.protocol.verbs import Artifact, AskInput, Complete, Delegate, Progress
from postroom.sidecar.a2a.peers import AskedTasks
from postroom.sidecar.a2a.routes import A2ARoutes
from postroom.sidecar.api import LocalApi
from postroom_a2a.json_operations import JsonOperations
from postroom_a2a.operations import Call
from postroom_a2a.params import camel
from postroom_a2a.rpc import Code, RpcError
from tests.sidecar.task_stub import OWN, TaskStub
from tests.sidecar.worker_rig import WorkerRig

HUGE_TOKEN = base64.urlsafe_b64encode(f'[1{"0" * 400}, "x"]'.encode()).decode()
"""A page token with a number that is none."""

pytestmark = pytest.mark.anyio

CARD = build_card(OWN, "reader", Template(name="reader", command=("true",)), version="1")
HEADERS = {"A2A-Version": "1.0"}


@dataclass
class Clients:
    """A running server with its tasks, and clients of the SDK's."""

    tasks: TaskStub
    http: httpx.AsyncClient
    client: Client
    streaming: Client
    url: str
    socket: Path
    _agents: set[asyncio.Task[None]] = field(default_factory=set)

    def works(self, *actions: Any) -> None:
        """The agent says these of the next task."""
        number = len(self.tasks.asked) + 1

        async def work() -> None:
            await self.tasks.until(number)
            for action in actions:
                await self.tasks.on_task(action)

        self._agents.add(asyncio.create_task(work()))

    async def send(self, text: str, **fields: Any) -> Task:
        """The task that the message of a client becomes."""
        wait = fields.pop("wait", True)
        configuration = SendMessageConfiguration(return_immediately=not wait)
        request = SendMessageRequest(message=said(text, **fields), configuration=configuration)
        answers = [answer async for answer in self.client.send_message(request)]
        assert len(answers) == 1
        return answers[0].task

    async def call(self, method: str, params: Any = None, **changes: Any) -> dict[str, Any]:
        """A call by hand; returns the answer."""
        headers = changes.pop("headers", HEADERS)
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}} | changes
        answer = await self.http.post(f"{self.url}/a2a", json=call, headers=headers)
        assert answer.status_code == 200
        return answer.json()

    async def events(self, method: str, params: Any) -> AsyncGenerator[dict[str, Any]]:
        """The results of a streaming call by hand."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        url = f"{self.url}/a2a"
        async with self.http.stream("POST", url, json=call, headers=HEADERS) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))["result"]

    async def error(self, method: str, params: Any = None, **changes: Any) -> dict[str, Any]:
        """The error that answers a call by hand."""
        return (await self.call(method, params, **changes))["error"]


def said(text: str, **fields: Any) -> Message:
    fields = {"message_id": os.urandom(8).hex(), "role": Role.ROLE_USER} | fields
    return Message(parts=[Part(text=text)], **fields)


def operations_of(tasks: TaskStub, **more: Any) -> JsonOperations:
    asked = AskedTasks(tasks, tasks, tasks, OWN, OWN)  # ty: ignore[invalid-argument-type]
    return JsonOperations(asked, **more)


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[Clients]:
    tasks, server = TaskStub(), HttpServer()
    a2a = A2ARoutes(operations_of(tasks), CARD, server.port)
    api = LocalApi(tasks, {}, server.port, a2a)
    path, url = tmp_path / "a2a.sock", f"http://127.0.0.1:{server.port}"
    server.answer_with(api.handle).also_at(path, a2a.handle)
    async with server, httpx.AsyncClient(timeout=10, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        streaming = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        found = Clients(tasks, http, client, streaming, url, path)
        yield found
        for agent in found._agents:
            await agent


@pytest.mark.requirement("a2a-http")
async def test_a_client_of_the_sdk_gives_a_task_and_has_its_result(clients: Clients):
    clients.works(Progress("", "half"), Artifact("", "42", name="sum"), Complete("", "done"))
    task = await clients.send("add", context_id="talk", message_id="one")

    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert task.context_id == "talk"
    assert [(a.name, a.parts[0].text) for a in task.artifacts] == [("sum", "42")]
    (asked,) = clients.tasks.asked
    assert (asked.to, asked.content.text, asked.content.thread) == (OWN, "add", "talk")


def shown(event: StreamResponse) -> str:
    """What an event of a stream says, in a word."""
    match event.WhichOneof("payload"):
        case "task":
            return f"task {TaskState.Name(event.task.status.state)}"
        case "status_update":
            return TaskState.Name(event.status_update.status.state)
        case _:
            return event.artifact_update.artifact.parts[0].text


@pytest.mark.requirement("a2a-http")
async def test_a_client_of_the_sdk_streams_a_task_from_its_first_change_to_its_end(
    clients: Clients,
):
    clients.works(Progress("", "half"), Artifact("", "42", name="sum"), Complete("", "done"))
    request = SendMessageRequest(message=said("add"))
    events = [shown(event) async for event in clients.streaming.send_message(request)]

    assert events == [
        "task TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "42",
        "TASK_STATE_COMPLETED",
    ]
    again = SendMessageRequest(message=request.message)
    assert [shown(event) async for event in clients.streaming.send_message(again)] == events


@pytest.mark.requirement("a2a-http")
async def test_a_stream_ends_when_the_task_asks_and_a_subscription_goes_on_to_its_end(
    clients: Clients,
):
    clients.works(AskInput("", "which?"))
    asked = [
        event
        async for event in clients.streaming.send_message(SendMessageRequest(message=said("pick")))
    ]
    assert [shown(event) for event in asked][-1] == "TASK_STATE_INPUT_REQUIRED"

    task = asked[0].task.id
    stream = clients.streaming.subscribe(SubscribeToTaskRequest(id=task))
    assert shown(await anext(stream)) == "task TASK_STATE_INPUT_REQUIRED"
    await clients.send("red", task_id=task, wait=False)
    await clients.tasks.on_task(Complete(task))
    rest = [shown(event) async for event in stream]
    assert rest == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    with pytest.raises(UnsupportedOperationError):
        await anext(clients.streaming.subscribe(SubscribeToTaskRequest(id=task)))
    with pytest.raises(TaskNotFoundError):
        await anext(clients.streaming.subscribe(SubscribeToTaskRequest(id="0" * 32)))


async def closed(stream: AsyncIterator[StreamResponse]) -> None:
    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()


async def test_a_stream_whose_client_hangs_up_ends(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.http.server.SILENCE", 0.05)
    stream = clients.streaming.send_message(SendMessageRequest(message=said("add")))
    await anext(stream)
    async with asyncio.timeout(10):
        while not clients.tasks.news.followers:  # noqa: ASYNC110 (a follower is no event)
            await asyncio.sleep(0.01)
        await closed(stream)
        while clients.tasks.news.followers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_streams_are_bounded():
    operations = operations_of(TaskStub(), streams=1)
    call = Call(1, "SendStreamingMessage", {"message": MESSAGE})
    stream = operations.stream(call)
    await anext(stream)
    with pytest.raises(RpcError) as refused:
        await anext(operations.stream(call))
    assert refused.value.code is Code.SERVER_BUSY
    await stream.aclose()
    await anext(operations.stream(call))


@pytest.mark.requirement("task-request-runs-once")
async def test_the_same_message_of_a_client_is_the_same_task(clients: Clients):
    first = await clients.send("add", message_id="one", wait=False)
    second = await clients.send("add", message_id="one", wait=False)
    other = await clients.send("add", message_id="two", wait=False)

    assert first.id == second.id != other.id


async def test_who_does_not_wait_reads_the_task_later(clients: Clients):
    task = await clients.send("add", wait=False)
    assert task.status.state == TaskState.TASK_STATE_SUBMITTED

    await clients.tasks.on_task(Complete(task.id, "done"))
    task = await clients.client.get_task(GetTaskRequest(id=task.id))
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert task.status.message.parts[0].text == "done"
    task = await clients.client.get_task(GetTaskRequest(id=task.id, history_length=0))
    assert not task.history


async def test_a_task_that_asks_goes_on_with_the_answer(clients: Clients):
    clients.works(AskInput("", "which?"))
    task = await clients.send("pick")
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED

    task = await clients.send("the red one", task_id=task.id, wait=False)
    assert task.status.state == TaskState.TASK_STATE_WORKING
    assert [part.text for message in task.history for part in message.parts] == [
        "pick",
        "which?",
        "the red one",
    ]
    assert len(clients.tasks.asked) == 1


async def test_a_message_for_a_task_that_waits_for_nothing_is_refused(clients: Clients):
    task = await clients.send("pick", wait=False)

    with pytest.raises(UnsupportedOperationError):
        await clients.send("more", task_id=task.id)
    with pytest.raises(TaskNotFoundError):
        await clients.send("more", task_id="0" * 32)
    params = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
    params["message"] |= {"taskId": task.id, "contextId": "another"}
    assert (await clients.error("SendMessage", params))["code"] == -32602


async def test_a_client_cancels_a_task_once(clients: Clients):
    task = await clients.send("long", wait=False)
    task = await clients.client.cancel_task(CancelTaskRequest(id=task.id))
    assert task.status.state == TaskState.TASK_STATE_CANCELED

    with pytest.raises(TaskNotCancelableError):
        await clients.client.cancel_task(CancelTaskRequest(id=task.id))
    with pytest.raises(TaskNotFoundError):
        await clients.client.cancel_task(CancelTaskRequest(id="0" * 32))


async def test_tasks_are_listed_page_by_page_the_latest_first(clients: Clients):
    ids = [(await clients.send(text, wait=False)).id for text in ("a", "b", "c")]
    await clients.tasks.on_task(Artifact(ids[0], "42"))
    await clients.tasks.on_task(Complete(ids[0]))

    first = await clients.client.list_tasks(ListTasksRequest(page_size=2))
    assert [task.id for task in first.tasks] == [ids[0], ids[2]]
    assert (first.total_size, first.page_size) == (3, 2)
    assert not first.tasks[0].artifacts
    token = first.next_page_token
    second = await clients.client.list_tasks(ListTasksRequest(page_size=2, page_token=token))
    assert [task.id for task in second.tasks] == [ids[1]]
    assert second.next_page_token == ""
    done = ListTasksRequest(status=TaskState.TASK_STATE_COMPLETED, include_artifacts=True)
    (task,) = (await clients.client.list_tasks(done)).tasks
    assert task.artifacts[0].parts[0].text == "42"
    (task,) = (await clients.client.list_tasks(ListTasksRequest(context_id=ids[1]))).tasks
    assert task.id == ids[1]


async def test_a_task_that_the_worker_asked_another_for_is_not_its_own(clients: Clients):
    given = await clients.tasks.delegate(Delegate("@carol", "", "x"))

    with pytest.raises(TaskNotFoundError):
        await clients.client.get_task(GetTaskRequest(id=given.task))
    assert not (await clients.client.list_tasks(ListTasksRequest())).tasks


async def test_what_the_card_does_not_offer_is_refused_by_its_name(clients: Clients):
    with pytest.raises(PushNotificationNotSupportedError):
        await clients.client.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(task_id="x", id="y")
        )
    for method in ("GetExtendedAgentCard",):
        error = await clients.error(method)
        assert error["code"] == -32004
        assert error["data"] == [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "UNSUPPORTED_OPERATION",
                "domain": "a2a-protocol.org",
                "metadata": {},
            }
        ]


MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}


@pytest.mark.parametrize(
    "call, code",
    [
        ({"method": "Dance"}, -32601),
        ({"jsonrpc": "1.0"}, -32600),
        ({"id": True}, -32600),
        ({"params": [1]}, -32602),
        ({"params": {}}, -32602),
        ({"params": {"message": MESSAGE | {"messageId": ""}}}, -32602),
        ({"params": {"message": MESSAGE | {"role": "user"}}}, -32602),
        ({"params": {"message": MESSAGE | {"parts": []}}}, -32602),
        ({"params": {"message": MESSAGE | {"parts": ["x"]}}}, -32602),
        ({"params": {"message": MESSAGE | {"parts": [{"metadata": {}}]}}}, -32602),
        ({"params": {"message": MESSAGE | {"parts": [{"text": "x", "url": "y"}]}}}, -32602),
        ({"params": {"message": MESSAGE | {"parts": [{"raw": "no base64!"}]}}}, -32602),
        ({"params": {"message": MESSAGE | {"parts": [{"url": 7}]}}}, -32602),
        ({"params": {"message": MESSAGE | {"parts": [{"text": " "}]}}}, -32602),
        ({"params": {"message": MESSAGE | {"metadata": 7}}}, -32602),
        ({"params": {"message": MESSAGE, "configuration": 1}}, -32602),
        ({"params": {"message": MESSAGE, "configuration": {"historyLength": -1}}}, -32602),
        ({"method": "GetTask", "params": {"id": "0" * 32}}, -32001),
        ({"method": "GetTask", "params": {"id": 7}}, -32602),
        ({"method": "ListTasks", "params": {"pageSize": 0}}, -32602),
        ({"method": "ListTasks", "params": {"pageSize": 101}}, -32602),
        ({"method": "ListTasks", "params": {"pageToken": "x"}}, -32602),
        ({"method": "ListTasks", "params": {"pageToken": HUGE_TOKEN}}, -32602),
        ({"method": "ListTasks", "params": {"status": "done"}}, -32602),
        ({"method": "ListTasks", "params": {"statusTimestampAfter": "now"}}, -32602),
        ({"headers": {"A2A-Version": "0.3"}}, -32009),
        ({"headers": {"A2A-Version": ""}}, -32009),
    ],
)
async def test_a_wrong_call_is_answered_with_its_error(
    clients: Clients, call: dict[str, Any], code: int
):
    made: dict[str, Any] = {"method": "SendMessage", "params": {"message": MESSAGE}} | call
    error = await clients.error(**made)

    assert error["code"] == code
    assert error["data"][0]["reason"]


@pytest.mark.parametrize("body, code", [(b"{", -32700), (b"[]", -32600), (b"[" * 10**5, -32700)])
async def test_a_body_that_is_no_call_is_answered_with_its_error(
    clients: Clients, body: bytes, code: int
):
    headers = HEADERS | {"content-type": "application/json"}
    answer = await clients.http.post(f"{clients.url}/a2a", content=body, headers=headers)

    assert (answer.json()["error"]["code"], answer.json()["id"]) == (code, None)


@pytest.mark.requirement("a2a-http")
async def test_the_card_is_at_both_paths_and_names_this_server_first(clients: Clients):
    for path in ("agent-card.json", "agent.json"):
        card = (await clients.http.get(f"{clients.url}/.well-known/{path}")).json()

        assert card["name"] == "reader"
        assert [each["url"] for each in card["supportedInterfaces"]] == [
            f"{clients.url}/a2a",
            f"nats://worker.{OWN}.rpc",
        ]
        assert not any("required" in each for each in card["capabilities"]["extensions"])


@pytest.mark.requirement("a2a-http")
async def test_a_card_says_how_long_it_may_be_kept_and_is_not_sent_again_to_who_has_it(
    clients: Clients,
):
    url = f"{clients.url}/.well-known/agent-card.json"
    first = await clients.http.get(url)
    tag = first.headers["etag"]
    assert "max-age=" in first.headers["cache-control"]
    assert parsedate_to_datetime(first.headers["last-modified"]) <= datetime.now(UTC)

    for known in (tag, f'"other", W/{tag}', "*"):
        again = await clients.http.get(url, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    changed = await clients.http.get(url, headers={"If-None-Match": '"other"'})
    assert (changed.status_code, changed.json()) == (200, first.json())


@pytest.mark.requirement("a2a-http")
async def test_a_client_that_has_the_endpoint_as_its_base_url_is_served(clients: Clients):
    async with httpx.AsyncClient(base_url=f"{clients.url}/a2a", trust_env=False) as http:
        card = await http.get("/.well-known/agent-card.json")
        call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        listed = await http.post("/", json=call, headers=HEADERS)

    assert (
        card.json() == (await clients.http.get(f"{clients.url}/.well-known/agent-card.json")).json()
    )
    assert listed.json()["result"]["tasks"] == []


@pytest.mark.requirement("a2a-http")
async def test_fields_are_taken_by_the_names_of_the_proto_too(clients: Clients):
    clients.works(Complete("", "done"))
    free = {"kept_as_it_is": 1}
    message: dict[str, Any] = {"message_id": "m", "context_id": "talk", "role": "ROLE_USER"}
    message |= {"parts": [{"text": "x", "media_type": "text/plain"}], "metadata": free}
    configuration = {"return_immediately": True, "history_length": 0}
    sent = await clients.call("SendMessage", {"message": message, "configuration": configuration})
    task = sent["result"]["task"]
    await clients.tasks.until(1)

    assert task["contextId"] == "talk"
    assert "history" not in task
    for context, size, found in (("talk", 1, 1), ("other", 1, 0)):
        asked = {"context_id": context, "page_size": size, "include_artifacts": True}
        listing = (await clients.call("ListTasks", asked))["result"]
        assert (len(listing["tasks"]), listing["pageSize"]) == (found, size)


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_names_that_are_no_names_of_the_proto_stay_as_they_are(value: Any):
    taken = camel({"metadata": value, "parts": [{"data": value}]})

    assert taken == {"metadata": value, "parts": [{"data": value}]}
    assert camel(camel(value)) == camel(value)
    assert camel({"message_id": "proto", "messageId": "json"}) == {"messageId": "json"}


@pytest.mark.requirement("a2a-parts-pass")
async def test_a_message_with_parts_of_every_kind_is_the_same_wherever_it_is_shown(
    clients: Clients,
):
    now = {"message": WHOLE, "configuration": {"returnImmediately": True}}
    sent = (await clients.call("SendMessage", now))["result"]["task"]
    await clients.tasks.on_task(Artifact(sent["id"], "", parts=WHOLE["parts"]))
    listing = {"contextId": "talk", "includeArtifacts": True}
    got = (await clients.call("GetTask", {"id": sent["id"]}))["result"]
    (listed,) = (await clients.call("ListTasks", listing))["result"]["tasks"]
    streamed = await anext(clients.events("SubscribeToTask", {"id": sent["id"]}))

    assert sent["history"] == [WHOLE]
    for task in (got, listed, streamed["task"]):
        assert task["history"] == [WHOLE]
        assert list(task["history"][0]["metadata"]) == list(WHOLE["metadata"])
        assert task["artifacts"][0]["parts"] == WHOLE["parts"]


@pytest.mark.requirement("a2a-parts-pass")
async def test_an_artifact_with_parts_of_every_kind_is_streamed_as_it_is(clients: Clients):
    clients.works(Artifact("", "", parts=WHOLE["parts"]), Complete("", "done"))
    events = clients.events("SendStreamingMessage", {"message": MESSAGE})
    made = [event async for event in events if "artifactUpdate" in event]

    assert [event["artifactUpdate"]["artifact"]["parts"] for event in made] == [WHOLE["parts"]]


@pytest.mark.requirement("a2a-parts-pass")
async def test_an_answer_with_parts_of_every_kind_joins_the_history_as_it_is(clients: Clients):
    clients.works(AskInput("", "which?"))
    task = await clients.send("pick")
    answer = WHOLE | {"messageId": "n", "taskId": task.id, "contextId": task.context_id}
    await clients.call(
        "SendMessage", {"message": answer, "configuration": {"returnImmediately": True}}
    )
    (answered,) = clients.tasks.answered

    assert answered.content.message("n", "ROLE_USER") | {"taskId": task.id} == answer


@pytest.mark.requirement("a2a-parts-pass")
async def test_a_part_that_the_agent_does_not_take_is_refused_by_its_code(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
):
    async def refuse(*_: Any, **__: Any) -> None:
        raise ContentNotTaken("@reader does not take part 1", remedy="it takes text/plain")

    monkeypatch.setattr(clients.tasks, "delegate", refuse)
    error = await clients.error("SendMessage", {"message": WHOLE})

    assert error["code"] == -32005
    assert "@reader does not take part 1" in error["message"]
    assert error["data"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"


@pytest.mark.requirement("a2a-parts-pass")
async def test_a_client_may_name_extensions_and_other_versions_are_refused(clients: Clients):
    known = {"A2A-Version": "1.0.1", "A2A-Extensions": "https://x.example/v1,https://y.example"}
    assert "result" in await clients.call("ListTasks", headers=known)
    for version in ("0.3", "2.0", "99.0", "1", "one"):
        error = await clients.error("ListTasks", headers={"A2A-Version": version})
        assert (error["code"], error["data"][0]["reason"]) == (-32009, "VERSION_NOT_SUPPORTED")


@pytest.mark.requirement("api-key-required")
async def test_web_pages_and_other_host_names_have_no_answer_on_the_port(clients: Clients):
    card, a2a = f"{clients.url}/.well-known/agent-card.json", f"{clients.url}/a2a"
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        assert (await clients.http.get(card, headers=headers)).status_code == 403
        answer = await clients.http.post(a2a, json={}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, Forbidden.code)
    answer = await clients.http.post(a2a, content=b"{}", headers={"content-type": "text/plain"})
    assert answer.json()["error"]["code"] == -32005


def over(path: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=path)
    return httpx.AsyncClient(transport=transport, base_url="http://postroom", timeout=10)


@pytest.mark.requirement("identity-keys-private")
async def test_the_socket_answers_its_owner_with_the_a2a_routes_alone(clients: Clients):
    async with over(str(clients.socket)) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["name"] == "reader"
        call = {"jsonrpc": "2.0", "id": "a", "method": "ListTasks"}
        answer = await http.post("/a2a", json=call, headers=HEADERS)
        assert answer.json()["result"]["tasks"] == []
        answer = await http.get("/v1/whoami")
        assert (answer.status_code, answer.json()["code"]) == (404, NotFound.code)
    assert stat.S_IMODE(clients.socket.stat().st_mode) == 0o600


async def card_at(path: Path) -> int:
    async with over(str(path)) as http:
        return (await http.get("/.well-known/agent.json")).status_code


async def serve_at(path: Path) -> HttpServer:
    server = HttpServer()
    a2a = A2ARoutes(operations_of(TaskStub()), CARD, server.port)
    return server.answer_with(a2a.handle).also_at(path, a2a.handle)


async def test_the_socket_of_a_killed_run_is_replaced_and_a_stopped_one_leaves_none(
    tmp_path: Path,
):
    path = tmp_path / "a2a.sock"
    killed = socket.socket(socket.AF_UNIX)
    killed.bind(str(path))
    killed.close()

    async with await serve_at(path):
        assert await card_at(path) == 200
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a long path is reached through /proc")
async def test_the_socket_may_lie_deeper_than_an_address_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)

    async with await serve_at(folder / "a2a.sock"):
        monkeypatch.chdir(folder)
        assert await card_at(Path("a2a.sock")) == 200
        assert stat.S_IMODE(Path("a2a.sock").stat().st_mode) == 0o600


async def test_without_a_socket_the_port_answers_all_the_same(tmp_path: Path):
    (tmp_path / "a2a.sock").mkdir()
    async with (
        await serve_at(tmp_path / "a2a.sock") as server,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        url = f"http://127.0.0.1:{server.port}/.well-known/agent.json"
        assert (await http.get(url)).status_code == 200
    assert (tmp_path / "a2a.sock").is_dir()


async def test_nobody_waits_for_a_task_whose_client_has_gone(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.sidecar.a2a.peers.SLICE", 0.05)
    monkeypatch.setattr("postroom.sidecar.a2a.routes.LOOK", 0.05)
    looked = asyncio.Event()
    look = clients.tasks.task

    async def task(*args: Any, **options: Any) -> dict[str, Any]:
        looked.set()
        return await look(*args, **options)

    monkeypatch.setattr(clients.tasks, "task", task)
    with contextlib.suppress(httpx.ReadTimeout):
        await clients.http.post(
            f"{clients.url}/a2a",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "SendMessage",
                "params": {"message": MESSAGE},
            },
            headers=HEADERS,
            timeout=0.5,
        )
    assert looked.is_set()
    async with asyncio.timeout(10):
        while True:  # until a whole slice goes by in which nobody looks
            looked.clear()
            try:
                async with asyncio.timeout(1):
                    await looked.wait()
            except TimeoutError:
                return


async def test_a_worker_shows_its_card_at_its_port_and_at_the_socket_in_its_state_folder(
    home: WorkerRig, monkeypatch: pytest.MonkeyPatch
):
    program = """
    for line in lines():
        if line["type"] == "hello":
            say(type="post", text=line["api"])
    """
    card = build_card(
        home.worker, "reader", Template(name="reader", command=("true",)), version="1"
    )
    async with home.sidecar(program, card=card):
        (api,) = await home.tap.until(home.posts)
        monkeypatch.chdir(home.folder / "state")
        async with over("a2a.sock") as http, httpx.AsyncClient(trust_env=False) as local:
            outside = (await http.get("/.well-known/agent-card.json")).json()
            inside = (await local.get(f"{api}/.well-known/agent-card.json")).json()
    assert outside == inside
    assert outside["supportedInterfaces"][0]["url"] == f"{api}/a2a"
    assert not (home.folder / "state" / "a2a.sock").exists()
