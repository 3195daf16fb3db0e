"""Traces and limits where others ask, and where we ask others: A2A, push notifications, agents elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from postroom.protocol.principal import Scope
from tests.control.taskroom import emptied
from tests.control.test_keys import person
from tests.metrics.scraping import Measured, measured_room
from tests.push.receivers import OK, answering, receiver
from tests.push.test_room import VERSION, done, open_for
from tests.remote.scripted import agent, result, scripted

pytestmark = pytest.mark.anyio

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
async def measured(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Measured]:
    bounds = {"limit_requests": 0.01, "limit_burst": 12}  # none comes back while a test looks
    async with measured_room(tmp_path_factory.mktemp("room"), **bounds) as measured:
        yield measured


@pytest.mark.requirement("traces-one")
async def test_the_trace_of_an_a2a_call_goes_out_with_its_push_notifications(
    measured: Measured,
) -> None:
    before = await measured.scrape()
    async with receiver(answering(503), OK) as hook, emptied(measured.room) as room:
        open_for(room, hook)
        bob = await room.worker("bob")
        said = {"messageId": "m-traced", "role": "ROLE_USER", "parts": [{"text": "do it"}]}
        configuration = {
            "returnImmediately": True,
            "taskPushNotificationConfig": {"url": hook.url},
        }
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {"message": said, "configuration": configuration},
        }
        headers = VERSION | {"traceparent": CALLER}
        answer = await room.api.post(f"/a2a/{bob.uid}", json=body, headers=headers)
        task = answer.json()["result"]["task"]
        await done(bob, task["id"])
        got = await hook.until(1)
        assert got[0].headers["traceparent"] == CALLER

        name = "postroom_push_deliveries_total"
        after = await measured.scrape()
        while after.of_labels(name, outcome="failed") == before.of_labels(name, outcome="failed"):
            after = await measured.scrape()
        assert after.of_labels(name, outcome="delivered") >= 0


@pytest.mark.requirement("caller-limits")
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_caller_of_a2a_over_its_limit_gets_429_and_an_error_of_json_rpc(
    measured: Measured, version: str
) -> None:
    async with person(measured.room, "ann", *Scope) as ann:
        while await ann.status() == 200:
            pass
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
        answer = await ann.api.post("/a2a/nobody", json=body, headers={"A2A-Version": version})
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 100
    assert "0.01 requests a second" in answer.json()["error"]["message"]


@pytest.mark.requirement("traces-one")
async def test_the_trace_of_a_task_goes_to_the_agent_elsewhere_that_does_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with scripted() as script:
        port = script.url.rpartition(":")[2]
        private = (f"127.0.0.1:{port}",)
        folder = tmp_path_factory.mktemp("room")
        async with measured_room(folder, egress_private=private) as measured:
            room = measured.room
            url = f"{script.url}/rpc"
            card = {
                "name": "Other",
                "supportedInterfaces": [
                    {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
                ],
            }
            said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}
            script.then(agent(card, result({"message": said})))
            made = (await room.api.post("/v1/agents/remote", json={"url": script.url})).json()
            asked = await room.api.post(
                "/v1/tasks",
                json={"to": made["uid"], "text": "x"},
                headers={"traceparent": CALLER},
            )
            await room.get(f"/{asked.json()['id']}", wait="final", timeout=10)
            (sent,) = [each for each in script.asked if each.method == "POST"]
            assert sent.headers["traceparent"] == CALLER
