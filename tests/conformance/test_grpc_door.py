"""A2A over gRPC at a real control plane: agents by tenant, rights, the end of a key, the audit log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
import pytest
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
    a2a_pb2_grpc,
)
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from postroom.control.a2a import place
from postroom.control.a2a.grpc import open_grpc
from postroom.control.endpoints import plan
from postroom.errors import EnvironmentFault, InvalidInput, PortTaken
from postroom.protocol.audit import AuditRecord
from postroom.protocol.principal import Scope
from postroom.settings import Settings
from postroom_a2a.task_state import TaskState as Ours
from tests.control.taskroom import KEY, SECONDS, TaskRoom, emptied, task_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("a2a-http")]

SETTINGS = Settings(grpc_listen="127.0.0.1:0")
NOW = SendMessageConfiguration(return_immediately=True)


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room, AsyncExitStack() as stack:
        base = f"http://{room.site.host}"
        await open_grpc(room.parts.installation, plan(SETTINGS), None, base, stack)
        yield room


@pytest.fixture(scope="module")
async def service(shared: TaskRoom) -> AsyncGenerator[Any]:
    async with grpc.aio.insecure_channel(shared.parts.installation.grpc.near) as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


def key(secret: str = KEY) -> tuple[tuple[str, str], ...]:
    return ("a2a-version", "1.0"), ("authorization", f"Bearer {secret}")


def ask(tenant: str, name: str, text: str = "do it", **more: Any) -> SendMessageRequest:
    said = Message(message_id=name, role=Role.ROLE_USER, parts=[Part(text=text)])
    return SendMessageRequest(message=said, tenant=tenant, **more)


@asynccontextmanager
async def person(room: TaskRoom, nick: str, *scopes: str) -> AsyncGenerator[dict[str, Any]]:
    """Somebody with a key; both are gone afterwards."""
    made = (await room.api.post("/v1/people", json={"nick": nick, "scopes": list(scopes)})).json()
    try:
        yield {"uid": made["uid"], "key": made["key"]["key"], "id": made["key"]["id"]}
    finally:
        await room.api.delete(f"/v1/people/{made['uid']}")


async def refused(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


def acts(room: TaskRoom) -> list[AuditRecord]:
    lines = room.parts.installation.audit.files.path.read_bytes().splitlines()
    return [AuditRecord.decode(line) for line in lines if b"A2AService" in line]


async def test_the_card_says_where_grpc_is_and_a_task_goes_all_its_way(
    shared: TaskRoom, service: Any
):
    async with emptied(shared) as room, asyncio.timeout(SECONDS):
        bob = await room.worker("bob")
        card = (await room.api.get("/a2a/bob/.well-known/agent-card.json")).json()
        (there,) = [e for e in card["supportedInterfaces"] if e["protocolBinding"] == "GRPC"]
        assert there == {
            "url": room.parts.installation.grpc.near,
            "protocolBinding": "GRPC",
            "protocolVersion": "1.0",
            "tenant": bob.uid,
        }
        asked = ask(bob.uid, "m1", configuration=NOW)
        task = (await service.SendMessage(asked, metadata=key())).task
        assert task.status.state == TaskState.TASK_STATE_SUBMITTED
        again = (await service.SendMessage(asked, metadata=key())).task
        assert again.id == task.id
        request = SubscribeToTaskRequest(id=task.id, tenant=bob.uid)
        events = service.SubscribeToTask(request, metadata=key())
        assert (await events.read()).task.id == task.id
        await bob.take(task.id)
        await bob.say(task.id, Ours.WORKING, "at it", attempt=1)
        await bob.make(task.id, "42")
        await bob.say(task.id, Ours.COMPLETED, "done")
        seen = []
        while (event := await events.read()) is not grpc.aio.EOF:
            seen.append(event)
        assert seen[-2].artifact_update.artifact.parts[0].text == "42"
        assert seen[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        page = await service.ListTasks(ListTasksRequest(tenant="bob"), metadata=key())
        assert [each.id for each in page.tasks] == [task.id]
        shown = await room.get(f"/{task.id}")
        assert shown["door"] == "a2a+grpc"


async def test_the_extended_card_comes_over_grpc_too(shared: TaskRoom, service: Any):
    async with emptied(shared) as room:
        bob = await room.worker("bob")
        request = GetExtendedAgentCardRequest(tenant="bob")
        card = await service.GetExtendedAgentCard(request, metadata=key())
        assert card.name == "bob"
        assert f"http://{room.site.host}/a2a/{bob.uid}" in [
            each.url for each in card.supported_interfaces
        ]


async def test_what_is_not_there_and_what_is_anothers_look_the_same(shared: TaskRoom, service: Any):
    async with emptied(shared) as room, person(room, "ann", *Scope) as ann:
        await room.worker("bob")
        hers = await service.SendMessage(
            ask("bob", "hers", configuration=NOW), metadata=key(ann["key"])
        )
        async with person(room, "eve", Scope.READ, Scope.TASK) as eve:
            for task in (hers.task.id, "none"):
                for call in (
                    service.GetTask(
                        GetTaskRequest(id=task, tenant="bob"), metadata=key(eve["key"])
                    ),
                    service.CancelTask(
                        CancelTaskRequest(id=task, tenant="bob"), metadata=key(eve["key"])
                    ),
                ):
                    assert await refused(call) is grpc.StatusCode.NOT_FOUND
        for tenant in ("nobody", "", "other/bob", "maria"):
            found = service.ListTasks(ListTasksRequest(tenant=tenant), metadata=key())
            assert await refused(found) is grpc.StatusCode.NOT_FOUND
            # Who has no key learns nothing of who is there.
            found = service.ListTasks(ListTasksRequest(tenant=tenant), metadata=key("wrong"))
            assert await refused(found) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_key_that_only_reads_gives_no_task(shared: TaskRoom, service: Any):
    async with emptied(shared) as room, person(room, "ann", Scope.READ) as ann:
        await room.worker("bob")
        sent = service.SendMessage(ask("bob", "m1"), metadata=key(ann["key"]))
        assert await refused(sent) is grpc.StatusCode.PERMISSION_DENIED
        page = await service.ListTasks(ListTasksRequest(tenant="bob"), metadata=key(ann["key"]))
        assert list(page.tasks) == []
        (act,) = [each for each in acts(room) if each.principal == ann["uid"]]
        assert (act.verb, act.status) == ("POST", 403)


async def test_without_a_key_no_request_is_read(shared: TaskRoom):
    at = shared.parts.installation.grpc.near
    async with emptied(shared) as room, person(room, "ann", *Scope) as ann:
        await room.api.delete(f"/v1/keys/{ann['id']}")
        async with grpc.aio.insecure_channel(at) as channel, asyncio.timeout(SECONDS):
            call = channel.stream_unary("/lf.a2a.v1.A2AService/SendMessage")
            for metadata in ((), key("wrong"), key(ann["key"]), (("x-api-key", "wrong"),)):
                silent = call(metadata=metadata)  # nothing is ever sent
                assert await silent.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", ["SendStreamingMessage", "SubscribeToTask", "SendMessage"])
async def test_the_end_of_a_key_ends_what_it_opened_and_the_task_goes_on(
    shared: TaskRoom, service: Any, method: str
):
    async with emptied(shared) as room, person(room, "ann", *Scope) as ann:
        bob = await room.worker("bob")
        metadata = key(ann["key"])
        first = await service.SendMessage(ask("bob", "m1", configuration=NOW), metadata=metadata)
        asked: Any = ask("bob", "m2")
        if method == "SubscribeToTask":
            asked = SubscribeToTaskRequest(id=first.task.id, tenant="bob")
        call = getattr(service, method)(asked, metadata=metadata)
        async with asyncio.timeout(SECONDS):
            if method == "SendMessage":
                done = service.ListTasks(ListTasksRequest(tenant="bob"), metadata=metadata)
                while (await done).total_size < 2:  # stored by another call, which tells nobody
                    done = service.ListTasks(ListTasksRequest(tenant="bob"), metadata=metadata)
            else:
                await call.read()
            await room.api.delete(f"/v1/keys/{ann['id']}")
            ended = call if method == "SendMessage" else call.read()
            assert await refused(ended) is grpc.StatusCode.UNAUTHENTICATED
        await bob.take(first.task.id)
        await bob.say(first.task.id, Ours.WORKING, attempt=1)
        await bob.say(first.task.id, Ours.COMPLETED, "done")
        assert (await room.get(f"/{first.task.id}"))["state"] == "completed"


async def test_every_act_is_in_the_audit_log_and_reading_is_not(shared: TaskRoom, service: Any):
    async with emptied(shared) as room, person(room, "ann", *Scope) as ann:
        await room.worker("bob")
        metadata = key(ann["key"])
        task = (
            await service.SendMessage(ask("bob", "m", configuration=NOW), metadata=metadata)
        ).task.id
        await service.GetTask(GetTaskRequest(id=task, tenant="bob"), metadata=metadata)
        await service.CancelTask(CancelTaskRequest(id=task, tenant="bob"), metadata=metadata)
        found = [each for each in acts(room) if each.principal == ann["uid"]]
        assert [(each.url, each.status, each.task) for each in found] == [
            ("/lf.a2a.v1.A2AService/SendMessage", 200, task),
            ("/lf.a2a.v1.A2AService/CancelTask", 200, task),
        ]
        assert found[0].client == "127.0.0.1"
        assert ann["key"] not in json.dumps([each.encode().decode() for each in found])


async def test_the_card_below_http_names_its_own_origin_alone(shared: TaskRoom, service: Any):
    del service  # gRPC is on
    async with emptied(shared) as room, asyncio.timeout(SECONDS):
        bob = await room.worker("bob")
        whole = (await room.api.get("/a2a/bob/.well-known/agent-card.json")).json()
        alone = (await room.api.get("/a2a/bob/http/.well-known/agent-card.json")).json()
        assert alone["supportedInterfaces"] == [
            each for each in whole["supportedInterfaces"] if each["protocolBinding"] != "GRPC"
        ]
        # As Google ADK checks a card: each interface has the origin that the card came from.
        for each in alone["supportedInterfaces"]:
            assert urlsplit(each["url"])[:2] == ("http", room.site.host)
            assert each["url"].endswith(f"/a2a/{bob.uid}")


async def probe(near: str, service: bytes = b"") -> bytes:
    async with grpc.aio.insecure_channel(near) as channel:
        return await channel.unary_unary("/grpc.health.v1.Health/Check")(service)


async def test_a_probe_without_a_key_hears_that_it_serves(shared: TaskRoom):
    near = shared.parts.installation.grpc.near
    serving = b"\x08\x01"
    assert await probe(near) == serving
    assert await probe(near, b"\x0a\x14lf.a2a.v1.A2AService") == serving
    assert await refused(probe(near, b"\x0a\x01x")) is grpc.StatusCode.NOT_FOUND
    assert await refused(probe(near, b"\xff")) is grpc.StatusCode.INVALID_ARGUMENT


async def reflected(near: str, metadata: Any, *requests: Any) -> list[Any]:
    async with grpc.aio.insecure_channel(near) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = stub.ServerReflectionInfo(iter(requests), metadata=metadata)
        return [each async for each in asked]


async def test_a_tool_with_a_key_is_told_what_the_service_speaks(shared: TaskRoom):
    near = shared.parts.installation.grpc.near
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    symbol = reflection_pb2.ServerReflectionRequest(file_containing_symbol="lf.a2a.v1.A2AService")
    listed, found = await reflected(near, key(), listing, symbol)
    names = {each.name for each in listed.list_services_response.service}
    assert {"lf.a2a.v1.A2AService", "grpc.health.v1.Health"} < names
    assert any(
        b"A2AService" in each for each in found.file_descriptor_response.file_descriptor_proto
    )
    for stranger in ((), key("a2a_" + "0" * 97)):
        refusal = await refused(reflected(near, stranger, listing))
        assert refusal is grpc.StatusCode.UNAUTHENTICATED


async def test_a_port_that_is_taken_is_an_error(shared: TaskRoom):
    taken = shared.parts.installation.grpc.near
    async with AsyncExitStack() as stack:
        with pytest.raises(PortTaken, match="cannot serve gRPC"):
            await open_grpc(
                shared.parts.installation,
                plan(Settings(grpc_listen=taken)),
                None,
                "http://x",
                stack,
            )


def test_a_tenant_names_the_organisation_too():
    for org, uid in (("default", "a" * 32), ("other", "b" * 32)):
        assert place.read_tenant(place.tenant_of(org, uid)) == (org, uid)


def test_without_its_packages_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    place.check(SETTINGS)
    monkeypatch.setattr(place, "find_spec", lambda _: None)
    place.check(Settings())
    with pytest.raises(EnvironmentFault, match=r"postroom\[grpc\]"):
        place.check(SETTINGS)


def test_beyond_loopback_there_is_no_grpc_without_tls():
    assert not plan(SETTINGS).certified
    far = plan(Settings(grpc_listen="192.0.2.1:4292", grpc_address="grpc.example:443"))
    assert far.grpc_tls
    assert far.certified
    assert far.names == ("192.0.2.1",)
    assert far.grpc_addresses(4292, None) == ("192.0.2.1:4292", ("grpc.example:443",))
    assert plan(Settings(grpc_listen="127.0.0.1", tls="always")).grpc_tls
    with pytest.raises(InvalidInput):
        plan(Settings(grpc_listen="127.0.0.1:99999"))


def test_a_card_names_the_place_that_its_reader_can_reach():
    at = place.GrpcPlace("127.0.0.1:1", ("far.example:1",))
    assert [each["url"] for each in at.interfaces("default", "u", near=True)] == ["127.0.0.1:1"]
    assert [each["url"] for each in at.interfaces("default", "u", near=False)] == ["far.example:1"]
    assert place.GrpcPlace().interfaces("default", "u", near=True) == []
