"""What a sidecar says of its worker, and how an agent finds others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from postroom.bus.port import Message, Stored
from postroom.errors import BusDisconnected
from postroom.protocol import subjects
from postroom.sidecar.status import Announcer
from tests.sidecar.inside import Inside
from tests.sidecar.inside import inside as running
from tests.sidecar.worker_rig import ECHO, LISTED, PATIENCE, WorkerRig

pytestmark = pytest.mark.anyio

FINDS = """
say(type="find", skill="write", ref=7)
say(type="find", skill=["write"], ref=8)
for line in lines():
    say(type="post", text=json.dumps(line))
"""


@pytest.mark.requirement("a2a-http-card")
async def test_a_sidecar_announces_the_card_that_it_was_handed(home: WorkerRig):
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def hear(message: Message) -> None:
        heard.put_nowait(message.payload)

    await home.bus.edge.subscribe(subjects.discovery(home.worker), hear)
    async with home.sidecar(ECHO, card={"name": "reader"}):
        async with asyncio.timeout(PATIENCE):
            announced = await heard.get()

    assert json.loads(announced) == {"name": "reader"}
    assert heard.empty()


class Broken:
    """A wire that fails as often as it is told."""

    def __init__(self) -> None:
        self.failures = 0
        self.sent: list[dict[str, object]] = []

    async def publish(self, subject: str, payload: bytes, **_: object) -> Stored | None:
        if self.failures:
            self.failures -= 1
            raise BusDisconnected("away")
        self.sent.append(json.loads(payload))
        return None

    async def request(self, *_: object, **__: object):
        raise NotImplementedError


@pytest.mark.requirement("a2a-http-card")
async def test_a_card_is_announced_again_when_it_has_changed_or_did_not_get_through():
    wire = Broken()
    wire.failures = 1
    announcer = Announcer(wire, "a" * 32, {"version": "1"})

    for _ in range(3):
        await announcer.announce()
    announcer.card = {"version": "2"}
    for _ in range(2):
        await announcer.announce()

    assert wire.sent == [{"version": "1"}, {"version": "2"}]


@pytest.fixture
async def inside(home: WorkerRig) -> AsyncIterator[Inside]:
    async with running(home) as found:
        yield found


@pytest.mark.requirement("task-skill-chosen")
async def test_an_agent_finds_others_by_a_line(home: WorkerRig):
    async with home.sidecar(FINDS):
        posts = await home.tap.until(lambda: len(home.posts()) >= 3 and home.posts())

    answers = {answer.get("ref"): answer for answer in map(json.loads, posts)}
    assert answers[7] == {"type": "agents", "ref": 7, "agents": [LISTED]}
    assert answers[8]["type"] == "error"
    assert home.finds == [{"skill": "write"}]


@pytest.mark.requirement("task-skill-chosen")
async def test_the_command_lists_who_is_there_and_what_they_can_do(inside: Inside):
    code, out, _ = await inside.run("agents", "--skill", "write & more")

    assert (code, out) == (0, "@carol online [write] Writes.")
    assert inside.home.finds == [{"skill": "write & more"}]

    _, out, _ = await inside.run("agents", "--json")
    assert json.loads(out) == LISTED
    assert inside.home.finds[1] == {"skill": ""}


@pytest.mark.requirement("task-skill-chosen")
async def test_the_local_api_lists_agents(inside: Inside):
    host = inside.api.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    request = f"GET /v1/agents?skill=write HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()

    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"agents": [LISTED]}
