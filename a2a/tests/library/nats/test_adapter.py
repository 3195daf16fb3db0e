"""The adapter of a connection of nats-py: what it shares with our own connection, and what it is not asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

import postroom_a2a as a2a
from library.nats import durableagent
from library.nats.agent import TIMEOUT
from library.servers import open_server
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.durable.server import DurableServer
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.natspy import AdaptedConnection
from postroom_a2a.nats.pull import PullLoop
from postroom_a2a.nats.silence import Silence

pytestmark = pytest.mark.anyio


def _names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("other", [WireConnection, Client])
def test_a_name_means_one_thing_for_the_adapter_and_for_what_it_stands_for(other: type):
    clashing = []
    for name in _names(AdaptedConnection) & _names(other):
        mine, theirs = getattr(AdaptedConnection, name), getattr(other, name)
        if not callable(mine) or not callable(theirs):
            continue
        waits = inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(theirs)
        if not waits or _needed(mine) != _needed(theirs):
            clashing.append(name)

    assert clashing == []


def _needed(method: Callable[..., object]) -> list[str]:
    """What every caller has to give."""
    parameters = inspect.signature(method).parameters.values()
    return [each.name for each in parameters if each.default is each.empty]


@pytest.mark.parametrize("name", ["leave", "reconnect"])
async def test_silence_of_jetstream_moves_no_connection_that_is_not_ours(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    asked: list[object] = []
    monkeypatch.setattr(AdaptedConnection, name, lambda *given: asked.append(given), raising=False)
    async with open_server(tmp_path, jetstream=False) as url, await nats.connect(url) as client:
        mailbox = Mailbox(client)
        Silence(mailbox.connection).goes_on(0.0)
        pulls = PullLoop(JetStream(mailbox), "S", "d", lambda *_: True, lambda: 1)
        await pulls._check_connection()

    assert asked == []


async def test_a_subscription_that_ends_takes_no_caller_of_its_connection_with_it(tmp_path: Path):
    async with open_server(tmp_path) as url, await a2a.connect(url) as serving:
        client = await nats.connect(url)
        adapted = Mailbox(client).connection
        agent = DurableServer(serving, durableagent.SUBJECT, durableagent.Agent(), drain=1.0)
        async with agent:
            caller = DurableCaller(adapted, durableagent.SUBJECT)
            assert await durableagent.ask(caller, "first", TIMEOUT)
            reader = caller.responses
            await (await adapted.subscribe("somewhere.else")).drain()
            assert reader.ready == {durableagent.SUBJECT}
            assert await durableagent.ask(caller, "second", TIMEOUT)
            await caller.close()
        await client.close()
