"""What A2A demands of an agent, by the SDK's own client over JSON-RPC, REST and gRPC: a worker behind the wall answers.

The worker acts on the prefix of a message's id (`tests/conformance/agent.py`).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
from a2a.client import A2ACardResolver, AuthInterceptor, Client, ClientConfig, ClientFactory
from a2a.client.auth.credentials import CredentialService
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from postroom_a2a.json_operations import REPEATED
from tests.agents.programs import A2A, NODE, installed
from tests.e2e.conftest import PostRoom, running_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("a2a-http")]

HERE = Path(__file__).resolve().parent
PATIENCE = 20.0
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
NOBODY = "0" * 32


class Key(CredentialService):
    """The same key for whatever a card asks for."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def get_credentials(self, security_scheme_name: str, context: Any) -> str:
        return self._key


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    """A post room with the worker."""
    with running_room(POSTROOM_A2A_GRPC_LISTEN="127.0.0.1:0") as found:
        folder = found.scratch / "kit"
        folder.mkdir()
        for name in ("kit.toml", "agent.py"):
            shutil.copy(HERE / name, folder / name)
        found.run("spawn", str(folder / "kit.toml"))
        found.await_state("kit", "idle")
        yield found


@pytest.fixture
async def http(room: PostRoom) -> AsyncIterator[httpx.AsyncClient]:
    """With the key; a card is asked for with it."""
    headers = {"Authorization": f"Bearer {room.server['token']}"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE, verify=False) as client:
        yield client


@dataclass
class Caller:
    """The SDK's client by one binding, as a program has it that knows the agent's URL and a key."""

    client: Client
    card: AgentCard

    async def events(self, name: str, **fields: Any) -> list[StreamResponse]:
        """What a message brings, as a stream where the client streams."""
        async with asyncio.timeout(PATIENCE):
            return [each async for each in self.client.send_message(ask(name, **fields))]

    async def send(self, name: str, **fields: Any) -> Task:
        """The task of a message, once it has ended or asks."""
        now = fields.pop("now", False)
        events = await self.events(name, now=now, **fields)
        assert events
        return await self.get(events[0].task.id)

    async def get(self, task: str, **fields: Any) -> Task:
        return await self.client.get_task(GetTaskRequest(id=task, **fields))

    async def subscribed(self, task: str, most: int = 0) -> list[StreamResponse]:
        """What a subscriber sees; `most`: it leaves after so many events."""
        seen: list[StreamResponse] = []
        events: Any = self.client.subscribe(SubscribeToTaskRequest(id=task))
        async with aclosing(events):
            async for event in events:
                seen.append(event)
                if len(seen) == most:
                    break
        return seen


def ask(name: str, *, now: bool = False, keep: int | None = None, **fields: Any) -> Any:
    """A request for what the worker does at `name`; a new one each time, but for a message id in `fields`."""
    fields.setdefault("message_id", f"tck-{name}-{secrets.token_hex(4)}")
    fields.setdefault("parts", [Part(text="do it")])
    said = Message(role=Role.ROLE_USER, **fields)
    settings = SendMessageConfiguration(return_immediately=now)
    if keep is not None:
        settings.history_length = keep
    return SendMessageRequest(message=said, configuration=settings)


@pytest.fixture(params=BINDINGS)
async def caller(
    request: pytest.FixtureRequest, room: PostRoom, http: httpx.AsyncClient
) -> AsyncIterator[Caller]:
    url = f"{room.server['url']}/a2a/kit"
    card = await A2ACardResolver(http, url).get_agent_card()
    async with httpx.AsyncClient(timeout=PATIENCE, verify=False) as bare:
        config = ClientConfig(
            httpx_client=bare,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[request.param],
        )
        interceptors: Any = [AuthInterceptor(Key(room.server["token"]))]
        client = ClientFactory(config).create(card, interceptors)
        yield Caller(client, card)
        await client.close()


def name_of(state: int) -> str:
    return TaskState.Name(state).removeprefix("TASK_STATE_").lower()


def kinds(events: list[StreamResponse]) -> list[str]:
    """Each event in a word."""
    found = []
    for event in events:
        kind = event.WhichOneof("payload")
        status = {"task": event.task.status, "status_update": event.status_update.status}.get(
            str(kind)
        )
        found.append(name_of(status.state) if status is not None else "artifact")
    return found


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name, part",
    [
        ("artifact-text", {"text": "Generated text content"}),
        ("artifact-file", {"raw": "Y29udGVudA==", "filename": "output.txt"}),
        ("artifact-file-url", {"url": "https://example.com/output.txt"}),
        ("artifact-data", {"data": {"key": "value", "count": 42.0}}),
    ],
)
async def test_a_result_of_every_kind_comes_whole(caller: Caller, name: str, part: dict[str, Any]):
    task = await caller.send(name)
    assert name_of(task.status.state) == "completed"
    (artifact,) = task.artifacts
    assert MessageToDict(artifact.parts[0]).items() >= part.items()


async def test_a_stream_shows_the_task_each_change_and_the_end(caller: Caller):
    events = await caller.events("stream-001")
    assert events[0].HasField("task")
    assert [kind for kind in kinds(events) if kind != "submitted"] in (
        ["working", "artifact", "completed"],
        ["working", "working", "artifact", "completed"],  # taken, then "at it"
    )
    chunks = await caller.events("stream-artifact-chunked")
    pieces = [each.artifact_update for each in chunks if each.HasField("artifact_update")]
    assert [(p.artifact.parts[0].text, p.append, p.last_chunk) for p in pieces] == [
        ("chunk-1 ", False, False),
        ("chunk-2", True, True),
    ]
    whole = await caller.get(chunks[0].task.id)
    assert [part.text for part in whole.artifacts[0].parts] == ["chunk-1 ", "chunk-2"]


async def test_an_agent_answers_with_a_message_or_rejects(caller: Caller):
    caller.client._config.streaming = False  # ty: ignore[missing-attribute]
    (event,) = await caller.events("message-response")
    assert event.message.parts[0].text == "Direct message response"
    assert event.message.role == Role.ROLE_AGENT
    assert not event.message.metadata
    (event,) = await caller.events("reject-task")
    assert name_of(event.task.status.state) == "rejected"


# ── life cycle ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_question_is_answered_with_the_tasks_id_alone(caller: Caller):
    asked = await caller.send("input-required", context_id="talk")
    assert name_of(asked.status.state) == "input_required"
    with pytest.raises(A2AError, match="context"):
        await caller.events("complete-task", task_id=asked.id, context_id="another")
    done = await caller.send("complete-task", task_id=asked.id)
    assert (done.id, done.context_id) == (asked.id, "talk")
    assert name_of(done.status.state) == "completed"
    named = done.history[-1].message_id if done.history[-1].task_id else done.history[1].message_id
    again = await caller.send("", message_id=named, task_id=asked.id)
    assert (again.id, name_of(again.status.state)) == (asked.id, "completed")
    with pytest.raises(InvalidParamsError, match=asked.id):
        await caller.events("", message_id=named, task_id=asked.id, parts=[Part(text="another")])
    with pytest.raises(UnsupportedOperationError):
        await caller.events("complete-task", task_id=asked.id)


async def test_a_task_is_canceled_once_and_an_ended_one_is_not(caller: Caller):
    asked = await caller.send("input-required")
    canceled = await caller.client.cancel_task(CancelTaskRequest(id=asked.id))
    assert name_of(canceled.status.state) == "canceled"
    done = await caller.send("complete-task")
    with pytest.raises(TaskNotCancelableError):
        await caller.client.cancel_task(CancelTaskRequest(id=done.id))
    with pytest.raises(UnsupportedOperationError):
        await caller.subscribed(done.id)


async def test_what_is_not_there_is_missed_in_every_operation(caller: Caller):
    for missing in (
        caller.get(NOBODY),
        caller.client.cancel_task(CancelTaskRequest(id=NOBODY)),
        caller.subscribed(NOBODY),
        caller.events("complete-task", task_id=NOBODY),
    ):
        with pytest.raises(TaskNotFoundError):
            await missing


@pytest.mark.requirement("mend-used-id")
async def test_the_same_message_is_the_same_task(caller: Caller):
    first = await caller.send("complete-task")
    name = first.history[0].message_id
    again = await caller.events("", message_id=name)
    assert again[0].task.id == first.id
    assert again[0].task.metadata[REPEATED] is True
    for other in ({"context_id": "elsewhere"}, {"parts": [Part(text="another question")]}):
        with pytest.raises(InvalidParamsError, match=first.id):
            await caller.events("", message_id=name, **other)
    other = await caller.send("complete-task")
    assert other.id != first.id
    assert other.context_id != first.context_id


async def test_the_history_is_in_order_and_as_long_as_asked_for(caller: Caller):
    task = await caller.send("input-required")
    for name in ("input-required", "complete-task"):
        await caller.send(name, task_id=task.id)
    said = [m.message_id for m in (await caller.get(task.id)).history if m.role == Role.ROLE_USER]
    assert [name.rpartition("-")[0] for name in said] == [
        "tck-input-required",
        "tck-input-required",
        "tck-complete-task",
    ]
    assert len((await caller.get(task.id, history_length=1)).history) == 1
    assert not (await caller.get(task.id, history_length=0)).history
    events = await caller.events("complete-task", keep=0)
    assert not events[0].task.history


async def test_tasks_are_listed_newest_first_in_pages(caller: Caller):
    context = secrets.token_hex(8)
    made = [(await caller.send("artifact-text", context_id=context)).id for _ in range(3)]
    asked = ListTasksRequest(context_id=context, page_size=2)
    first = await caller.client.list_tasks(asked)
    assert [task.id for task in first.tasks] == made[:0:-1]
    assert (first.total_size, first.page_size) == (3, 2)
    assert not first.tasks[0].artifacts
    asked.page_token, asked.include_artifacts = first.next_page_token, True
    rest = await caller.client.list_tasks(asked)
    assert [task.id for task in rest.tasks] == made[:1]
    assert rest.next_page_token == ""
    assert rest.tasks[0].artifacts
    waiting = ListTasksRequest(context_id=context, status=TaskState.TASK_STATE_INPUT_REQUIRED)
    assert not (await caller.client.list_tasks(waiting)).tasks


async def test_all_streams_of_a_task_see_the_same_and_one_that_leaves_disturbs_none(
    caller: Caller,
):
    task = await caller.send("input-required")
    async with asyncio.timeout(PATIENCE):
        early = await caller.subscribed(task.id, most=1)
        streams = [asyncio.create_task(caller.subscribed(task.id)) for _ in range(3)]
        await asyncio.sleep(0)
        await caller.send("stream-001", task_id=task.id, now=True)
        seen = [await each for each in streams]
    assert early[0].task.id == task.id
    for events in seen:
        assert events[0].HasField("task")
        assert kinds(events)[-1] == "completed"
    tails = [[MessageToDict(each) for each in events[1:]] for events in seen]
    longest = max(tails, key=len)
    # Who came later begins later; from there on all is the same.
    assert all(longest[len(longest) - len(tail) :] == tail for tail in tails)


# ── push notifications, cards ────────────────────────────────────────────────────────────────────────


async def test_push_settings_are_kept_listed_and_deleted(caller: Caller):
    task = (await caller.send("complete-task")).id
    client = caller.client
    made = await client.create_task_push_notification_config(
        TaskPushNotificationConfig(task_id=task, id="mine", url="https://example.com/hook")
    )
    assert (made.id, made.url) == ("mine", "https://example.com/hook")
    one = GetTaskPushNotificationConfigRequest(task_id=task, id="mine")
    assert (await client.get_task_push_notification_config(one)).url == made.url
    every = ListTaskPushNotificationConfigsRequest(task_id=task)
    listed = await client.list_task_push_notification_configs(every)
    assert [each.id for each in listed.configs] == ["mine"]
    gone = DeleteTaskPushNotificationConfigRequest(task_id=task, id="mine")
    for _ in range(2):
        await client.delete_task_push_notification_config(gone)
    with pytest.raises(A2AError):
        await client.get_task_push_notification_config(one)


async def test_the_extended_card_is_one_of_the_same_agent(caller: Caller):
    card = await caller.client.get_extended_agent_card(GetExtendedAgentCardRequest())
    assert card.name == "kit"
    assert {each.protocol_binding for each in card.supported_interfaces} >= set(BINDINGS)


async def test_the_card_may_be_kept_and_is_not_sent_twice(room: PostRoom, http: httpx.AsyncClient):
    url = f"{room.server['url']}/a2a/kit/.well-known/agent-card.json"
    first = await http.get(url)
    assert first.headers["content-type"].startswith("application/json")
    assert "max-age=" in first.headers["cache-control"]
    assert first.headers["last-modified"]
    again = await http.get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = (await http.get(url, headers={"A2A-Version": "1.0"})).json()
    assert {"url", "preferredTransport", "protocolVersion"}.isdisjoint(plain)


async def test_json_has_the_names_enums_and_times_of_the_specification(
    room: PostRoom, http: httpx.AsyncClient
):
    url = f"{room.server['url']}/a2a/kit"
    body = MessageToDict(ask("artifact-text"))
    answer = await http.post(f"{url}/message:send", json=body, headers={"A2A-Version": "1.0"})
    task = answer.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["history"][0]["role"] == "ROLE_USER"
    assert task["status"]["timestamp"].endswith("Z")
    assert {"contextId", "artifacts"} <= task.keys()
    assert "artifactId" in task["artifacts"][0]


@pytest.mark.parametrize("version", ["99.0", "2", "1"])
async def test_another_version_is_refused_by_each_binding_in_its_words(
    room: PostRoom, http: httpx.AsyncClient, version: str
):
    url, stated = f"{room.server['url']}/a2a/kit", {"A2A-Version": version}
    params = MessageToDict(ask("complete-task"))
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    said = (await http.post(url, json=call, headers=stated)).json()["error"]
    assert (said["code"], said["data"][0]["reason"]) == (-32009, "VERSION_NOT_SUPPORTED")
    answer = await http.post(f"{url}/message:send", json=params, headers=stated)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


# ── a client in another language ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binding", BINDINGS)
def test_the_javascript_sdk_is_served_as_the_python_one(
    room: PostRoom, tmp_path: Path, binding: str
):
    modules = installed(A2A).parents[2]
    (tmp_path / "node_modules").symlink_to(modules)
    shutil.copy(HERE / "client.mjs", tmp_path)
    words = [f"{room.server['url']}/a2a/kit", room.server["token"], binding]
    done = subprocess.run(
        [NODE, "client.mjs", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert [next(iter(event)) for event in seen["streamed"]][-2:] == [
        "artifactUpdate",
        "statusUpdate",
    ]
    states = {name: seen[name]["status"]["state"] for name in ("asked", "answered", "canceled")}
    assert states == {
        "asked": "TASK_STATE_INPUT_REQUIRED",
        "answered": "TASK_STATE_COMPLETED",
        "canceled": "TASK_STATE_CANCELED",
    }
    assert seen["got"] == seen["answered"]
    assert seen["missing"].endswith("TaskNotFoundError")
