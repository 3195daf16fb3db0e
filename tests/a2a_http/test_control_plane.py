"""The A2A address of each agent at the control plane, over a real room and real HTTP."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from a2a.utils._jcs import canonicalize
from google.protobuf.json_format import MessageToDict

from a2a import types
from postroom.directory.card_signatures import verify_card
from postroom.identity import cardkey
from postroom.protocol.principal import Scope
from postroom.protocol.tasks import SKILL
from postroom.store.agents import Agent
from postroom_a2a.json_operations import REPEATED
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import KEY, SECONDS, TaskRoom, door_of, emptied, task_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("a2a-http")]

VERSION = {"A2A-Version": "1.0"}
NOW = {"returnImmediately": True}
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
CARD = ".well-known/agent-card.json"


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture(scope="module")
async def anna(shared: TaskRoom) -> Agent:
    """Another person than the operator."""
    return await shared.parts.directory.register("anna", "human")


def said(message_id: str, text: str = "do it", **more: Any) -> dict[str, Any]:
    parts = [{"text": text}]
    return {"messageId": message_id, "role": "ROLE_USER", "parts": parts, **more}


@asynccontextmanager
async def client_of(
    room: TaskRoom, agent: Agent, *scopes: Scope
) -> AsyncGenerator[httpx2.AsyncClient]:
    """HTTP with a key of `agent`, which ends with it."""
    me = await room.parts.iam.resolve(KEY)
    made = await room.parts.iam.create_key(me, agent.uid, scopes=scopes or (Scope.READ, Scope.TASK))
    headers = VERSION | {"X-API-Key": made.secret}
    async with httpx2.AsyncClient(
        base_url=f"http://{room.site.host}/a2a/", headers=headers, timeout=SECONDS, verify=False
    ) as client:
        yield client
    await room.parts.iam.revoke_key(me, made.key.id)


async def call(client: httpx2.AsyncClient, ref: str, method: str, **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await client.post(f"{ref}/", json=body, headers=VERSION)).json()


async def call_03(client: httpx2.AsyncClient, ref: str, **params: Any) -> dict[str, Any]:
    """`message/send` of A2A 0.3."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    return (await client.post(f"{ref}/", json=body, headers={"A2A-Version": "0.3"})).json()


async def send(client: httpx2.AsyncClient, ref: str, message: dict[str, Any]) -> dict[str, Any]:
    answer = await call(client, ref, "SendMessage", message=message, configuration=NOW)
    return answer["result"]["task"]


async def stream(
    client: httpx2.AsyncClient, ref: str, method: str, last: str = "", **params: Any
) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """Id and result of each event."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = VERSION | ({"Last-Event-ID": last} if last else {})
    async with client.stream("POST", ref, json=body, headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream", await answer.aread()
        number = ""
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                yield number, json.loads(line[6:])["result"]


@pytest.mark.requirement("client-stream-resumes")
async def test_a_task_is_sent_followed_and_followed_again_from_where_a_client_was(
    shared: TaskRoom, anna: Agent
):
    async with emptied(shared) as room, client_of(room, anna) as http:
        bob = await room.worker("bob")
        events = stream(http, "bob", "SendStreamingMessage", message=said("m1"))
        _, first = await anext(events)
        task = first["task"]["id"]
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, "at it", attempt=1)
        await bob.make(task, "42")
        await bob.say(task, TaskState.COMPLETED, "done")
        rest = [event async for event in events]
        assert [kind for _, event in rest for kind in event] == [
            "statusUpdate",
            "artifactUpdate",
            "statusUpdate",
        ]
        for seen in range(2):
            again = stream(http, bob.uid, "SubscribeToTask", rest[seen][0], id=task)
            assert [event async for event in again] == rest[seen + 1 :]
        got = await call(http, bob.uid, "GetTask", id=task, historyLength=0)
        assert got["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert "history" not in got["result"]
        ended = await call(http, "bob", "SubscribeToTask", id=task)
        assert ended["error"]["code"] == -32004
        follow_up = await call(http, "bob", "SendMessage", message=said("m2", taskId=task))
        assert follow_up["error"]["code"] == -32004
        row = await room.row(task)
        assert (row.requester, row.door) == (anna.uid, "a2a+jsonrpc")


@pytest.mark.requirement("task-request-runs-once")
async def test_the_same_message_id_twice_at_a_time_and_later_is_one_task(
    shared: TaskRoom, anna: Agent
):
    async with (
        emptied(shared) as room,
        client_of(room, anna) as http,
        client_of(room, room.owner) as other,
    ):
        bob = await room.worker("bob")
        message = said("twice")
        both = await asyncio.gather(*(send(http, bob.uid, message) for _ in range(2)))
        assert len({task["id"] for task in both}) == 1
        body = {"message": message, "configuration": NOW}
        over_rest = await http.post("bob/message:send", json=body)
        assert over_rest.json()["task"]["id"] == both[0]["id"]
        assert (await send(other, bob.uid, message))["id"] != both[0]["id"]
        assert (await call(http, "bob", "ListTasks"))["result"]["totalSize"] == 1


OTHER: dict[str, dict[str, Any]] = {
    "text": {"parts": [{"text": "another question"}]},
    "parts": {"parts": [{"text": "do it"}, {"data": {"n": 1}}]},
    "context": {"contextId": "elsewhere"},
    "reference": {"referenceTaskIds": ["f" * 32]},
    "skill": {"metadata": {SKILL: "write"}},
}


@pytest.mark.requirement("task-request-runs-once")
@pytest.mark.parametrize("other", OTHER)
@pytest.mark.requirement("mend-used-id")
async def test_a_used_message_id_with_other_content_is_refused_and_names_the_task(
    shared: TaskRoom, anna: Agent, other: str
):
    async with emptied(shared) as room, client_of(room, anna) as http:
        bob = await room.worker("bob")
        message = said(f"used-{other}", contextId="here")
        first = await send(http, bob.uid, message)
        assert REPEATED not in first.get("metadata", {})
        for method in ("SendMessage", "SendStreamingMessage"):
            refused = await call(http, "bob", method, message=message | OTHER[other])
            assert refused["error"]["code"] == -32602, refused
            assert first["id"] in refused["error"]["message"]
        rest = await http.post("bob/message:send", json={"message": message | OTHER[other]})
        assert (rest.status_code, first["id"] in rest.text) == (400, True)
        old = {"kind": "message", "role": "user", "messageId": message["messageId"]}
        parts = [{"kind": "text", "text": "another question"}]
        refused = await call_03(http, "bob", message=old | {"parts": parts})
        assert refused["error"]["code"] == -32602, refused
        again = await send(http, "bob", message | {"metadata": {"traceparent": TRACE}})
        assert (again["id"], again["metadata"][REPEATED]) == (first["id"], True)
        events = stream(http, "bob", "SendStreamingMessage", message=message)
        _, shown = await anext(events)
        await events.aclose()
        assert shown["task"]["metadata"][REPEATED] is True
        parts = [{"kind": "text", "text": "do it"}]
        same = old | {"parts": parts, "contextId": "here"}
        configuration = {"blocking": False}
        given = await call_03(http, "bob", message=same, configuration=configuration)
        assert given["result"]["id"] == first["id"]
        assert given["result"]["metadata"][REPEATED] is True
        assert (await call(http, "bob", "ListTasks"))["result"]["totalSize"] == 1


@pytest.mark.requirement("task-request-runs-once")
@pytest.mark.parametrize("other", OTHER)
async def test_of_two_messages_of_one_id_at_a_time_one_is_taken_and_the_other_refused(
    shared: TaskRoom, anna: Agent, other: str
):
    async with emptied(shared) as room, client_of(room, anna) as http:
        bob = await room.worker("bob")
        message = said(f"at-once-{other}")
        both = (message, message | OTHER[other])
        answers = await asyncio.gather(
            *(call(http, bob.uid, "SendMessage", message=each, configuration=NOW) for each in both)
        )
    (taken,) = [each["result"]["task"]["id"] for each in answers if "result" in each]
    (refused,) = [each["error"] for each in answers if "error" in each]
    assert (refused["code"], taken in refused["message"]) == (-32602, True)


@pytest.mark.requirement("task-request-runs-once")
async def test_an_answer_that_is_sent_again_gives_the_task_and_another_one_is_refused(
    shared: TaskRoom, anna: Agent
):
    async with emptied(shared) as room, client_of(room, anna) as http:
        bob = await room.worker("bob")
        task = (await send(http, "bob", said("the-request")))["id"]
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, "at it", attempt=1)
        await bob.say(task, TaskState.INPUT_REQUIRED, "which one?")
        answer = said("the-answer", "the red one", taskId=task)
        first = await call(http, "bob", "SendMessage", message=answer, configuration=NOW)
        assert REPEATED not in first["result"]["task"].get("metadata", {})
        await bob.say(task, TaskState.WORKING, heard=answer)
        for state in (TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED):
            if state is not TaskState.WORKING:
                await bob.say(task, state, "and then")
            again = await call(http, "bob", "SendMessage", message=answer, configuration=NOW)
            shown = again["result"]["task"]
            assert (shown["status"]["state"], shown["metadata"][REPEATED]) == (state.a2a, True)
            other = answer | {"parts": [{"text": "the blue one"}]}
            refused = await call(http, "bob", "SendMessage", message=other, configuration=NOW)
            assert (refused["error"]["code"], task in refused["error"]["message"]) == (-32602, True)
            first_id = said("the-request", "the red one", taskId=task)
            refused = await call(http, "bob", "SendMessage", message=first_id, configuration=NOW)
            assert refused["error"]["code"] == -32602
        new = await call(http, "bob", "SendMessage", message=said("new", taskId=task))
        assert new["error"]["code"] == -32004


async def test_a_task_for_an_agent_that_is_offline_or_elsewhere_is_accepted_and_waits(
    shared: TaskRoom, anna: Agent
):
    async with emptied(shared) as room, client_of(room, anna) as http:
        away = await room.worker("away", start=False)
        name = f"otto-{secrets.token_hex(4)}"  # a name stays taken
        otto = await room.parts.outside.add(name, "external")
        for ref in ("away", name):
            task = await send(http, ref, said(f"for-{ref}"))
            assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
            uris = [
                each["uri"]
                for each in (await http.get(f"{ref}/{CARD}")).json()["capabilities"]["extensions"]
            ]
            assert "urn:postroom:a2a:waiting:1" in uris
        assert (await room.row(task["id"])).worker == otto.uid
        assert away.uid != otto.uid


async def test_what_is_not_there_and_what_is_not_ones_own_look_the_same(
    shared: TaskRoom, anna: Agent
):
    async with (
        emptied(shared) as room,
        client_of(room, anna) as http,
        client_of(room, room.owner, Scope.READ, Scope.TASK) as other,
        client_of(room, anna, Scope.READ) as reader,
        httpx2.AsyncClient(base_url=str(http.base_url), headers=VERSION) as stranger,
    ):
        await room.worker("bob")
        task = (await send(http, "bob", said("mine")))["id"]
        refused = []
        for named in (task, "0" * 32):
            for method in ("GetTask", "CancelTask", "SubscribeToTask"):
                answer = await call(other, "bob", method, id=named)
                refused.append(answer["error"]["code"])
            refused.append((await other.get(f"bob/tasks/{named}")).status_code)
        assert refused == [-32001, -32001, -32001, 404] * 2
        for ref, status in (("nobody", 404), ("anna", 404), ("maria", 404), ("0" * 32, 403)):
            for path in (f"{ref}/{CARD}", f"{ref}/tasks"):
                answer = await http.get(path)
                assert answer.status_code == status
            assert (
                await http.post(ref, json={"jsonrpc": "2.0", "method": "ListTasks"})
            ).status_code == status
            # Who has no key does not learn who is there.
            assert (await stranger.get(f"{ref}/{CARD}")).status_code == 401
        assert (await stranger.get(f"bob/{CARD}")).status_code == 401
        assert (
            await reader.post("bob/message:send", json={"message": said("x")})
        ).status_code == 403
        assert (await reader.get("bob/tasks")).status_code == 200


async def test_a_worker_is_refused_at_the_door_of_others(shared: TaskRoom):
    async with emptied(shared) as room:
        bob, carol = await room.worker("bob"), await room.worker("carol")
        async with door_of(room, carol) as http:
            answer = await http.get(f"/a2a/{bob.uid}/tasks", headers=VERSION)
            assert answer.status_code == 403


async def test_a_revoked_key_ends_its_stream_and_acts_are_in_the_audit_log(
    shared: TaskRoom, anna: Agent
):
    async with emptied(shared) as room:
        await room.worker("bob")
        async with client_of(room, anna) as http:
            opened = stream(http, "bob", "SendStreamingMessage", message=said("watched"))
            task = (await anext(opened))[1]["task"]["id"]
            await call(http, "bob", "GetTask", id=task)
            # The act is in the log while its stream is open.
            log = room.parts.installation.audit.files.path.read_bytes().splitlines()
            acts = [json.loads(line) for line in log if b"/a2a/" in line]
            ours = [line for line in acts if line.get("principal") == anna.uid]
            assert (ours[-1]["task"], ours[-1]["verb"], ours[-1]["url"]) == (
                task,
                "POST",
                "/a2a/bob",
            )
            events = stream(http, "bob", "SubscribeToTask", id=task)
            await anext(events)
            me = await room.parts.iam.resolve(KEY)
            for key in await room.parts.iam.keys(anna.uid):
                await room.parts.iam.revoke_key(me, key.id)
            for ended in (opened, events):
                with pytest.raises(httpx2.RemoteProtocolError):
                    await asyncio.wait_for(anext(ended), SECONDS)
            assert (await http.get("bob/tasks")).status_code == 401


@pytest.mark.requirement("a2a-http-card")
async def test_a_card_has_this_address_and_a_signature_and_only_a_public_one_needs_no_key(
    shared: TaskRoom, anna: Agent
):
    async with (
        emptied(shared) as room,
        client_of(room, anna) as http,
        httpx2.AsyncClient(base_url=str(http.base_url)) as stranger,
    ):
        bob = await room.worker("bob", "weave")
        template = '[worker]\nname="x"\npublic=true\n[workstation]\ncommand=["true"]\n'
        await room.worker("open", start=False, template=template)
        keys = [room.rig.trust.card_key.jwk]
        plain = (await http.get(f"bob/{CARD}")).json()
        card = verify_card(plain, keys)
        url = f"http://{room.site.host}/a2a/{bob.uid}"
        assert {each["url"] for each in card["supportedInterfaces"]} == {url}
        assert "url" not in card
        extended = (await call(http, "bob", "GetExtendedAgentCard"))["result"]
        assert verify_card(extended, keys)["capabilities"]["extendedAgentCard"]
        both = (await http.get(f"bob/{CARD}", headers={"A2A-Version": ""})).json()
        assert (both["url"], both["preferredTransport"]) == (url, "JSONRPC")
        old = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
        said = (await http.post("bob", json=old, headers={"A2A-Version": ""})).json()["result"]
        for found in (plain, extended, both, said):
            assert is_signed_as_the_sdk_reads_it(found, keys[0])
        changed = both | {"description": "Is another."}
        assert not is_signed_as_the_sdk_reads_it(changed, keys[0])
        assert (await stranger.get(f"bob/{CARD}")).status_code == 401
        shown = await stranger.get(f"open/{CARD}")
        assert (shown.status_code, shown.json()["name"]) == (200, "open")
        assert shown.headers["cache-control"].startswith("public")
        again = {"If-None-Match": shown.headers["etag"]}
        assert (await stranger.get(f"open/{CARD}", headers=again)).status_code == 304
        assert (await stranger.get("open/tasks", headers=VERSION)).status_code == 401
        shown_agent = await room.api.post(
            "/v1/agents", json={"nick": "seen", "kind": "service", "public": True}
        )
        assert shown_agent.status_code == 201
        changed = {"description": "Is seen."}
        assert (await room.api.put("/v1/agents/seen/card", json=changed)).status_code == 200
        assert (await stranger.get(f"seen/{CARD}")).json()["description"] == "Is seen."
        await room.api.delete("/v1/agents/seen")


def is_signed_as_the_sdk_reads_it(card: dict[str, Any], key: dict[str, str]) -> bool:
    """What `create_signature_verifier` of the SDK does, whose PyJWT is not installed here."""
    read = MessageToDict(parse_agent_card(json.loads(json.dumps(card))))
    signatures = read.pop("signatures")
    form = canonicalize(without_empty(read)).encode()
    return any(
        cardkey.verify(
            key,
            f"{each['protected']}.{cardkey.to_text(form)}".encode(),
            cardkey.from_text(each["signature"]),
        )
        for each in signatures
    )


def without_empty(value: Any) -> Any:
    """As the SDK: empty texts, lists and objects are left out, from the inside to the outside."""
    if isinstance(value, dict):
        kept = {name: without_empty(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not None} or None
    if isinstance(value, list):
        return [each for each in map(without_empty, value) if each is not None] or None
    return None if value == "" else value


def text(message_id: str, words: str) -> Message:
    return Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=words)])


def sdk_client(
    card: dict[str, Any],
    binding: str,
    version: str,
    http: httpx.AsyncClient,
    *,
    streaming: bool = False,
) -> Client:
    """The SDK's client, of one binding and version."""
    wanted = {"protocolBinding": binding, "protocolVersion": version}
    parsed = parse_agent_card(json.loads(json.dumps(card)))  # it changes what it reads
    kept = [
        each
        for each in parsed.supported_interfaces
        if (each.protocol_binding, each.protocol_version) == tuple(wanted.values())
    ]
    del parsed.supported_interfaces[:]
    parsed.supported_interfaces.extend(kept)
    config = ClientConfig(
        httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding]
    )
    return ClientFactory(config).create(parsed)


@pytest.mark.requirement("a2a-http-versions")
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_official_client_sends_streams_asks_and_cancels(
    shared: TaskRoom, binding: str, version: str
):
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        emptied(shared) as room,
        httpx.AsyncClient(headers=headers, timeout=SECONDS) as http,
        asyncio.timeout(SECONDS),
    ):
        bob = await room.worker("bob")
        card = (await http.get(f"http://{room.site.host}/a2a/bob/{CARD}")).json()
        client = sdk_client(card, binding, version, http)
        unique = f"{binding}-{version}"
        now = SendMessageConfiguration(return_immediately=True)
        request = SendMessageRequest(message=text(f"{unique}-1", "one two"), configuration=now)
        sent = [event async for event in client.send_message(request)]
        task = sent[0].task.id
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, "at it", attempt=1)
        streaming = sdk_client(card, binding, version, http, streaming=True)
        follow = streaming.subscribe(SubscribeToTaskRequest(id=task))
        assert (await follow.__anext__()).task.status.state == types.TaskState.TASK_STATE_WORKING
        await bob.make(task, "42")
        await bob.say(task, TaskState.COMPLETED, "done")
        rest = [event.WhichOneof("payload") async for event in follow]
        assert rest == ["artifact_update", "status_update"]
        done = await client.get_task(GetTaskRequest(id=task))
        assert done.artifacts[0].parts[0].text == "42"
        assert done.history[0].parts[0].text == "one two"
        assert (await room.row(task)).door == (
            "a2a+jsonrpc" if binding == "JSONRPC" else "a2a+rest"
        )
        request = SendMessageRequest(message=text(f"{unique}-2", "more"), configuration=now)
        (second,) = [event async for event in client.send_message(request)]
        other = second.task.id
        canceled = await client.cancel_task(CancelTaskRequest(id=other))
        assert canceled.status.state == types.TaskState.TASK_STATE_CANCELED
