"""The A2A client against servers that fail in each way, over real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom import errors
from postroom.http.exchange import outbound_exchange
from postroom.http.outbound import OutboundPolicy
from postroom.remote.agents import Pace
from postroom_a2a.http.client import A2AClient, fetch_card
from postroom_a2a.http.client_attempts import Bounds, Calling
from postroom_a2a.http.client_cards import Interface, choose
from postroom_a2a.http.client_wire import FRUITLESS, EventReader
from postroom_a2a.retry import RetryPolicy
from tests.remote.scripted import (
    Scripted,
    answer,
    closing,
    error,
    events,
    refusing,
    reset,
    result,
    scripted,
    silent,
)

pytestmark = pytest.mark.anyio

SOON = RetryPolicy(attempts=4, base=0.001, cap=0.002)
TASK = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
DONE = {**TASK, "status": {"state": "TASK_STATE_COMPLETED"}}
SAID = {"parts": [{"text": "hello"}]}


def status(state: str) -> dict[str, Any]:
    update = {"taskId": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}}
    return {"statusUpdate": update}


def calling(policy: RetryPolicy = SOON, **more: Any) -> Calling:
    return Calling(outbound_exchange(None), retry=policy, **more)


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Scripted]:
    async with scripted() as served:
        yield served


def client(server: Scripted, **more: Any) -> A2AClient:
    return A2AClient(Interface(server.url), calling(**more))


@pytest.mark.requirement("a2a-client-speaks")
@pytest.mark.parametrize(
    "failure",
    [
        answer(500, "broken"),
        answer(502),
        answer(503, json.dumps({"detail": "starting"}), retry_after="1"),
        answer(504),
        reset(),
        reset(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 400\r\n\r\n{"),
        closing(),
        closing(b"HTTP/1.1 200 OK\r\ncontent-ty"),
        closing(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        answer(200, '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32050, "message": "busy"}}'),
    ],
    ids=["500", "502", "503", "504", "reset", "truncated", "closed", "in-head", "early", "busy"],
)
async def test_a_message_goes_out_again_with_the_same_id(server: Scripted, failure: Any):
    server.then(failure, failure, result({"task": TASK}))
    sent = await client(server).send(SAID, wait=False)
    assert sent == {"task": TASK}
    assert len(server.asked) == 3
    assert len({asked.message_id for asked in server.asked}) == 1


@pytest.mark.requirement("a2a-client-speaks")
@pytest.mark.parametrize(
    "failure, kind",
    [
        (answer(400, "no"), errors.CallerError),
        (answer(401), errors.Unauthorized),
        (answer(403), errors.Forbidden),
        (answer(404), errors.NotFound),
        (answer(413), errors.MessageTooLarge),
        (answer(429, retry_after="0"), errors.Refused),
        (answer(302, location="http://127.0.0.1:1/"), errors.CallerError),
        (answer(200, "<html>"), errors.ProtocolViolation),
        (answer(200, "[]"), errors.ProtocolViolation),
        (answer(200, "{}"), errors.ProtocolViolation),
        (answer(200, "x" * 5000), errors.ProtocolViolation),
        (error(-32001), errors.NotFound),
        (error(-32002), errors.Conflict),
        (error(-32602), errors.InvalidInput),
        (error(-32603), errors.PeerError),
        (error(-32001, status=404), errors.NotFound),
    ],
)
async def test_what_would_fail_again_is_not_repeated(
    server: Scripted, failure: Any, kind: type[errors.PostroomError]
):
    server.then(failure)
    with pytest.raises(kind) as refused:
        await client(server, bounds=Bounds(answer=4096)).get("t1")
    assert type(refused.value) is kind
    assert len(server.asked) == 1


async def test_who_asks_too_often_waits_as_long_as_it_is_told_if_it_has_said_so(server: Scripted):
    server.then(answer(429, retry_after="0"), result(TASK))
    patient = RetryPolicy(attempts=4, base=0.001, cap=0.002, patient=True)
    assert await client(server, policy=patient).get("t1") == TASK
    server.then(answer(429, retry_after="100"), result(TASK))
    began = time.monotonic()
    with pytest.raises(errors.Refused):  # there is no time for it
        await client(server, policy=patient).get("t1", timeout=20)
    assert len(server.asked) == 1
    assert time.monotonic() - began < 10


async def test_attempts_end_and_what_may_have_been_done_is_said_not_to_be_known(server: Scripted):
    server.then(reset())
    with pytest.raises(errors.Uncertain):
        await client(server).send(SAID)
    assert len(server.asked) == SOON.attempts
    with pytest.raises(errors.PeerError) as broken:
        await client(server).get("t1")
    assert type(broken.value) is errors.PeerError


@pytest.mark.requirement("a2a-client-speaks")
async def test_what_would_be_done_twice_is_not_repeated_after_a_close_without_an_answer(
    server: Scripted,
):
    server.then(closing())
    one = {"parts": [{"text": "x"}]}
    for method, params in (
        ("SendMessage", {"message": one}),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "http://x"}),
    ):
        server.asked.clear()
        with pytest.raises(errors.Uncertain):
            await client(server).call(method, params)
        assert len(server.asked) == 1
    server.asked.clear()
    with pytest.raises(errors.Uncertain):
        await client(server).set_push("t", {"url": "http://x"})
    assert len(server.asked) == 4
    assert len({asked.call["params"]["id"] for asked in server.asked}) == 1
    server.then(closing(), closing(), result(TASK))
    assert await client(server).get("t1") == TASK


@pytest.mark.parametrize("bytes_", [b"SSH-2.0-x\r\n", b"\x16\x03\x01\x00", b"<html>\n\n"])
async def test_what_is_not_http_is_asked_once(server: Scripted, bytes_: bytes):
    server.then(closing(bytes_))
    with pytest.raises(errors.ProtocolViolation, match="not HTTP"):
        await client(server).get("t1")
    assert len(server.asked) == 1


async def test_a_server_that_is_not_there_was_sent_nothing():
    taken, url = refusing()
    with taken, pytest.raises(errors.NoResponders):
        await A2AClient(Interface(url), calling()).send(SAID)


async def test_no_answer_in_time_is_a_timeout_at_the_deadline_of_the_call(server: Scripted):
    server.then(silent)
    with pytest.raises(errors.RequestTimeout):
        await client(server).get("t1", timeout=1.0)
    assert len(server.asked) == 1


@pytest.mark.requirement("egress-address-guarded")
async def test_the_guard_refuses_a_private_address_before_anything_is_sent(server: Scripted):
    server.then(result(TASK))
    guarded = Calling(outbound_exchange(OutboundPolicy()), retry=SOON)
    with pytest.raises(errors.AddressRefused):
        await A2AClient(Interface(server.url), guarded).get("t1")
    assert not server.asked
    port = server.url.rpartition(":")[2]
    opened = Calling(outbound_exchange(OutboundPolicy.parse([f"127.0.0.1:{port}"])), retry=SOON)
    assert await A2AClient(Interface(server.url), opened).get("t1") == TASK


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cut", [False, True])
async def test_a_broken_stream_goes_on_behind_the_last_event(server: Scripted, cut: bool):
    server.then(
        events({"task": TASK}, status("WORKING"), cut=cut),
        result(TASK),  # the stream ended: has the task?
        events({"task": TASK}, status("COMPLETED"), first=3),
    )
    found = [event async for event in client(server).stream(SAID)]
    assert found == [{"task": TASK}, status("WORKING"), {"task": TASK}, status("COMPLETED")]
    sent, asked, again = server.asked
    assert (sent.call["method"], asked.call["method"]) == ("SendStreamingMessage", "GetTask")
    assert (again.call["method"], again.call["params"]) == ("SubscribeToTask", {"id": "t1"})
    assert again.headers["last-event-id"] == "2"


async def test_a_stream_that_broke_before_its_first_event_sends_the_same_message(server: Scripted):
    server.then(events(), events({"task": TASK}, status("FAILED")))
    assert len([event async for event in client(server).stream(SAID)]) == 2
    assert len({asked.message_id for asked in server.asked}) == 1


async def test_a_task_that_ended_while_the_stream_was_broken_is_shown_as_it_is(server: Scripted):
    server.then(events({"task": TASK}), result(DONE))
    found = [event async for event in client(server).stream(SAID)]
    assert found == [{"task": TASK}, {"task": DONE}]


async def test_a_stream_that_breaks_off_again_and_again_ends(server: Scripted):
    server.then(events({"task": TASK}), *[result(TASK), events({"task": TASK})] * 20)
    with pytest.raises(errors.StreamBroken):
        [event async for event in client(server).stream(SAID)]


async def test_a_silent_stream_is_made_again(server: Scripted):
    held = asyncio.Event()
    server.then(
        events({"task": TASK}, hold=held), result(TASK), events({"task": TASK}, status("COMPLETED"))
    )
    found = [event async for event in client(server, silence=0.2).stream(SAID)]
    held.set()
    assert found[-1] == status("COMPLETED")


async def test_a_server_without_streams_gives_its_only_answer(server: Scripted):
    server.then(result({"task": DONE}))
    assert [event async for event in client(server).stream(SAID)] == [{"task": DONE}]
    server.then(error(-32004, "no streams here"))
    with pytest.raises(errors.Conflict):
        [event async for event in client(server).stream(SAID)]


async def test_an_event_that_is_none_ends_the_stream(server: Scripted):
    for value in ({"x": 1}, [], None, "text"):
        server.then(events(value))
        with pytest.raises(errors.ProtocolViolation):
            [event async for event in client(server).stream(SAID)]
    server.then(events({"task": {**TASK, "metadata": {"x": "y" * 5000}}}))
    with pytest.raises(errors.ProtocolViolation):
        [event async for event in client(server, bounds=Bounds(event=1000)).stream(SAID)]


def test_events_are_the_same_however_they_are_cut():
    text = b'\xef\xbb\xbf: hi\r\nid: 7\r\nevent: x\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:z\n\ndata\r\r'
    for size in range(1, len(text) + 1):
        reader = EventReader(1000)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        found = [event for piece in pieces for event in reader.feed(piece)]
        assert [(e.data, e.kind, e.id) for e in found] == [
            ('{"a":\n1}', "x", "7"),
            ("z", "message", "7"),
            ("", "message", "7"),
        ]


def test_a_stream_that_says_nothing_costs_little_and_ends_where_it_costs_more():
    reader = EventReader(1000)
    assert [each.data for each in reader.feed(b"data: 1\n\n")] == ["1"]
    for noise in (b"\n", b"\r\n", b": nothing\n"):
        for _ in range(3):
            assert list(reader.feed(noise * FRUITLESS)) == []
    assert [each.data for each in reader.feed(b":\ndata: 2\n\n")] == ["2"]
    with pytest.raises(errors.ProtocolViolation):
        list(reader.feed(b"id\n\n" * FRUITLESS))


@pytest.mark.parametrize("name", ["\u00e9", "\x01", "a" * 257, "two words"])
async def test_the_id_of_an_event_that_no_header_can_have_is_not_sent_back(
    server: Scripted, name: str
):
    first = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"task": TASK}})

    async def named(_: Any, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write(f"{head}id: {name}\ndata: {first}\n\n".encode())
        await writer.drain()

    server.then(named, result(TASK), events(status("COMPLETED")))
    found = [event async for event in client(server).stream(SAID)]
    assert found == [{"task": TASK}, status("COMPLETED")]
    assert "last-event-id" not in server.asked[2].headers


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 70}.example"])
async def test_a_name_that_no_resolver_takes_is_refused(host: str):
    with pytest.raises(errors.InvalidInput):
        await A2AClient(Interface(f"http://{host}/"), calling()).get("t1")


async def test_an_agent_is_read_no_faster_than_its_pace(server: Scripted):
    slow = Pace(rate=5000.0, burst=1000.0).slows(outbound_exchange(None))
    server.then(result({**TASK, "metadata": {"x": "y" * 2000}}))
    to = A2AClient(Interface(server.url), Calling(slow, retry=SOON))
    begun = time.monotonic()
    await to.get("t1")
    assert time.monotonic() - begun > 0.2


# ── cards ────────────────────────────────────────────────────────────────────────────────────────────

CARD = {
    "name": "x",
    "supportedInterfaces": [
        {"url": "https://x.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
}


async def test_a_card_is_found_at_both_paths_and_at_the_root_only_if_it_names_the_agent(
    server: Scripted,
):
    server.then(answer(404), answer(200, json.dumps(CARD)))
    assert await fetch_card(f"{server.url}/agent", calling()) == CARD
    assert [asked.target for asked in server.asked] == [
        "/agent/.well-known/agent-card.json",
        "/agent/.well-known/agent.json",
    ]
    server.then(answer(404), answer(404), answer(200, json.dumps(CARD)))
    with pytest.raises(errors.NotFound):
        await fetch_card(f"{server.url}/agent", calling())
    own = {"name": "x", "url": f"{server.url}/agent"}
    server.then(answer(404), answer(404), answer(200, json.dumps(own)))
    assert await fetch_card(f"{server.url}/agent/", calling()) == own


@pytest.mark.parametrize("body", ["<html>", "[]", "{}", '{"name": 1}', "x" * 300_000])
async def test_what_is_no_card_is_refused(server: Scripted, body: str):
    server.then(answer(200, body))
    with pytest.raises(errors.ProtocolViolation):
        await fetch_card(server.url, calling())


def test_the_newer_version_is_chosen_whatever_comes_first():
    offered = [
        {"url": "grpc.example:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "https://x.example/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {
            "url": "https://x.example/rest",
            "protocolBinding": "HTTP+JSON",
            "protocolVersion": "1.0.1",
            "tenant": "t",
        },
    ]
    assert choose({"supportedInterfaces": offered}) == Interface(
        "https://x.example/rest", "HTTP+JSON", "1.0", "t"
    )
    assert choose({"supportedInterfaces": offered[:2]}).version == "0.3"
    old = {"url": "https://x.example/", "preferredTransport": "GRPC", "protocolVersion": "0.3.0"}
    more = [{"url": "https://x.example/rpc", "transport": "JSONRPC"}]
    assert choose({**old, "additionalInterfaces": more}).url == "https://x.example/rpc"
    for card in (old, {}, {"supportedInterfaces": "x"}, {"supportedInterfaces": offered[:1]}):
        with pytest.raises(errors.ProtocolViolation):
            choose(card)


@pytest.mark.parametrize(
    "url", ["ftp://x", "x.example", "https://a:b@x/", "http://", "https://x/ y", "http://x:99999"]
)
async def test_an_address_that_is_none_is_refused(url: str):
    with pytest.raises(errors.InvalidInput):
        await fetch_card(url, calling())
