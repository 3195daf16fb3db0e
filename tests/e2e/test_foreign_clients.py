"""A2A clients that know nothing of Postroom, at the door of a worker."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, Task, TaskState

from tests.e2e.conftest import PostRoom

pytestmark = pytest.mark.anyio

PAINTER = """
[worker]
name = "painter"
[workstation]
command = ["sh", "-c", "grep -q red || postroom-agent ask 'which colour?'"]
adapter = "text"
"""
HEADERS = {"A2A-Version": "1.0"}


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    """The A2A socket of a worker of a running post room."""
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.up()
        room.run("spawn", room.template(PAINTER, "painter"))
        worker = room.await_state("painter", "idle")
        yield room.state / "workers" / worker["uid"] / "sidecar" / "a2a.sock"
        room.run("down")


@pytest.fixture
async def http(socket: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    async with httpx.AsyncClient(transport=transport, timeout=35) as client:
        yield client


def said(text: str, message_id: str, **fields: Any) -> SendMessageRequest:
    message = Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)], **fields)
    return SendMessageRequest(message=message)


@pytest.mark.requirement("a2a-http")
async def test_the_sdks_client_finds_its_own_message_ids_in_the_history(
    http: httpx.AsyncClient,
) -> None:
    card = await A2ACardResolver(http, "http://worker").get_agent_card()
    client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)

    async def send(request: SendMessageRequest) -> Task:
        (answer,) = [answer async for answer in client.send_message(request)]
        return answer.task

    asking = await send(said("paint it", "mine-1"))
    assert asking.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    done = await send(said("the red one", "mine-2", task_id=asking.id))
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    again = await send(said("paint it", "mine-1"))

    shown = await client.get_task(GetTaskRequest(id=asking.id))
    assert again.id == asking.id
    named = [said.message_id for said in shown.history if said.role == Role.ROLE_USER]
    assert named == ["mine-1", "mine-2"]


@pytest.mark.requirement("a2a-http")
async def test_a_client_by_hand_speaks_in_the_names_of_the_proto(http: httpx.AsyncClient) -> None:
    message = {"message_id": "by-hand", "role": "ROLE_USER", "parts": [{"text": "the red one"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = (await http.post("http://worker/a2a/", json=call, headers=HEADERS)).json()

    task = answer["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [said["messageId"] for said in task["history"]] == ["by-hand"]
