"""A2A over gRPC for callers of another organisation: by grants alone, and nothing is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    a2a_pb2_grpc,
)

from postroom.control.a2a.grpc import open_grpc
from postroom.control.endpoints import plan
from postroom.settings import Settings
from tests.control.tworooms import ACME, TwoRooms, two_rooms

pytestmark = [pytest.mark.anyio]

NOW = SendMessageConfiguration(return_immediately=True)


@pytest.fixture(scope="module")
async def rooms(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TwoRooms]:
    folder = tmp_path_factory.mktemp("rooms")
    async with two_rooms(folder) as opened, AsyncExitStack() as stack:
        base, endpoints = (
            f"http://{opened.home.site.host}",
            plan(Settings(grpc_listen="127.0.0.1:0")),
        )
        await open_grpc(opened.home.parts.installation, endpoints, None, base, stack)
        yield opened


@pytest.fixture(scope="module")
async def service(rooms: TwoRooms) -> AsyncGenerator[Any]:
    near = rooms.home.parts.installation.grpc.near
    async with grpc.aio.insecure_channel(near) as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


@pytest.mark.requirement("guest-tasks")
@pytest.mark.requirement("guest-learns-nothing")
async def test_a_guest_sends_by_a_grant_and_is_told_of_nobody_without(
    rooms: TwoRooms, service: Any
):
    alice, bob = await rooms.caller("alice"), await rooms.caller("bob", ACME)
    key = (("a2a-version", "1.0"), ("authorization", f"Bearer {alice.secret}"))
    said = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text="do it")])
    refused = set()
    for ref in (bob.agent.nick, bob.uid, "nobody", "f" * 32):
        for org in (ACME, "none"):
            tenant = f"{org}/{ref}"
            for call in (
                service.SendMessage(
                    SendMessageRequest(message=said, tenant=tenant, configuration=NOW),
                    metadata=key,
                ),
                service.GetTask(GetTaskRequest(id="f" * 32, tenant=tenant), metadata=key),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call
                text = (error.value.details() or "").replace(ref, "REF").replace(f".{org}", "")
                refused.add((error.value.code(), text))
    assert len(refused) == 1, refused

    await rooms.let_in(bob, alice, "task")
    asked = SendMessageRequest(message=said, tenant=f"{ACME}/{bob.uid}", configuration=NOW)
    task = (await service.SendMessage(asked, metadata=key)).task

    shown = (await bob.ask("GET", f"/v1/tasks/{task.id}")).json()
    assert shown["requester"]["nick"] == alice.address[1:]
