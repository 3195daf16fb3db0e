"""Tasks over the border of an organisation, over real HTTP: at the A2A door, and through the caller's own API."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from postroom.push import changes
from postroom.push.pusher import NOT_LET_IN, stopped_of
from postroom.push.receivers import Receiver
from postroom.store.database import Store
from postroom.store.pushes import PushRow
from tests.control.tworooms import ACME, HOME, Caller, TwoRooms, two_rooms

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("guest-tasks")]

NOON = 43200.0
NOW = {"returnImmediately": True}
SKILLS = {"skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}]}
CARD = ".well-known/agent-card.json"


@pytest.fixture(scope="module")
async def rooms(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TwoRooms]:
    async with two_rooms(tmp_path_factory.mktemp("rooms")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def alice(rooms: TwoRooms) -> Caller:
    return await rooms.caller("alice")


@pytest.fixture
async def bob(rooms: TwoRooms) -> Caller:
    return await rooms.caller("bob", ACME)


def said(text: str = "do it", **more: Any) -> dict[str, Any]:
    parts = [{"text": text}]
    return {"messageId": secrets.token_hex(8), "role": "ROLE_USER", "parts": parts, **more}


def call(method: str, task: str = "f" * 32) -> dict[str, Any]:
    """The parameters of a method of A2A."""
    match method:
        case "SendMessage" | "SendStreamingMessage":
            return {"message": said() | {"messageId": "m1"}, "configuration": NOW}
        case "ListTasks" | "GetExtendedAgentCard":
            return {}
        case "CreateTaskPushNotificationConfig":
            return {"taskId": task, "url": "https://192.0.2.1/hook"}
        case "ListTaskPushNotificationConfigs":
            return {"taskId": task}
        case _ if "PushNotification" in method:
            return {"taskId": task, "id": "c1"}
        case _:
            return {"id": task}


async def delegated(caller: Caller, to: Caller, text: str = "do it", **more: Any) -> dict[str, Any]:
    answer = await caller.ask("POST", "/v1/tasks", json={"to": to.address, "text": text, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def reported(worker: Caller, task: str, state: str, text: str = "") -> None:
    body = {"state": state, "text": text}
    answer = await worker.ask("POST", f"/v1/tasks/{task}/status", json=body)
    assert answer.is_success, answer.text


async def test_a_task_over_the_border_is_shown_at_both_ends_by_addresses(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    await rooms.let_in(bob, alice, "task")

    task = await delegated(alice, bob)

    assert (task["worker"]["nick"], task["requester"]["nick"]) == (
        bob.address[1:],
        alice.agent.nick,
    )
    there = (await bob.ask("GET", f"/v1/tasks/{task['id']}")).json()
    assert (there["worker"]["nick"], there["requester"]["nick"]) == (
        bob.agent.nick,
        alice.address[1:],
    )
    here = (await alice.ask("GET", f"/v1/tasks/{task['id'][:12]}")).json()
    assert here["worker"]["nick"] == bob.address[1:]


async def test_its_requester_waits_answers_reads_and_retries_it_by_its_id_alone(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    await rooms.let_in(bob, alice, "task")
    task = (await delegated(alice, bob))["id"]
    await reported(bob, task, "working")
    await reported(bob, task, "input-required", "which one?")

    asked = await alice.ask("GET", f"/v1/tasks/{task}", params={"wait": "settled"})
    assert asked.json()["state"] == "input-required"
    answered = await alice.ask("POST", f"/v1/tasks/{task}/answer", json={"text": "that one"})
    assert answered.is_success, answered.text
    await reported(bob, task, "failed", "no")
    ended = await alice.ask("GET", f"/v1/tasks/{task}", params={"wait": "final"})
    messages = (await alice.ask("GET", f"/v1/tasks/{task}/messages")).json()["messages"]
    events = (await alice.ask("GET", f"/v1/tasks/{task}/events")).json()["events"]
    again = await alice.ask("POST", f"/v1/tasks/{task}/retry")

    assert ended.json()["state"] == "failed"
    assert [each["text"] for each in messages] == ["do it", "which one?", "that one", "no"]
    assert messages[1]["from"]["nick"] == bob.address[1:]
    assert [event["state"] for event in events][-1] == "failed"
    assert again.json()["retry_of"] == task
    canceled = await alice.ask("POST", f"/v1/tasks/{again.json()['id']}/cancel")
    assert canceled.json()["state"] == "canceled", canceled.text


async def test_a_stream_of_a_task_ends_with_the_grant_and_the_task_stays(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    grant = await rooms.let_in(bob, alice, "task")
    task = (await delegated(alice, bob))["id"]
    at_home = alice.http.stream("GET", f"/v1/tasks/{task}/stream")
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    there = alice.http.stream(
        "POST",
        f"/orgs/{ACME}/a2a/{bob.agent.nick}/",
        json=body,
        headers={"A2A-Version": "1.0"},
    )
    async with at_home as first, there as second:
        assert (first.status_code, second.status_code) == (200, 200)
        lines = second.aiter_lines()
        await anext(lines)
        await rooms.revoke(grant, bob)
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            await first.aread()
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            async for _ in lines:
                pass

    refused = [
        await alice.ask("POST", "/v1/tasks", json={"to": bob.address, "text": "more"}),
        await alice.ask("POST", f"/v1/tasks/{task}/retry", json={"force": True}),
        await alice.ask("POST", f"/v1/tasks/{task}/answer", json={"text": "yes"}),
        await alice.ask("GET", f"/v1/tasks/{task}/stream"),
        await alice.ask("GET", f"/v1/tasks/{task}", params={"wait": "final"}),
    ]
    assert {(each.status_code, each.json()["code"]) for each in refused} == {(403, "not-let-in")}
    assert (await alice.ask("GET", f"/v1/tasks/{task}")).json()["state"] == "submitted"
    shown = (await alice.door(bob.agent.nick, "GetTask", id=task)).json()
    assert shown["result"]["id"] == task
    canceled = (await alice.door(bob.agent.nick, "CancelTask", id=task)).json()
    assert canceled["result"]["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("grant-revoke-counts")
async def test_a_stream_of_a_task_ends_when_the_time_of_the_grant_is_over(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    await rooms.let_in(bob, alice, "task", expires_at=time.time() + 1.5)
    await bob.parts.grants.refresh()
    task = (await delegated(alice, bob))["id"]

    async with alice.http.stream("GET", f"/v1/tasks/{task}/stream") as events:
        assert events.status_code == 200
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            async with asyncio.timeout(20.0):
                await events.aread()

    late = await alice.ask("POST", "/v1/tasks", json={"to": bob.address, "text": "more"})
    assert (late.status_code, late.json()["code"]) == (403, "not-let-in")


async def test_files_of_a_task_go_both_ways(rooms: TwoRooms, alice: Caller, bob: Caller):
    await rooms.let_in(bob, alice, "task")
    content, result = secrets.token_bytes(64), secrets.token_bytes(64)
    url = (await alice.ask("POST", "/v1/blobs", content=content)).json()["url"]
    named = hashlib.sha256(content).hexdigest()

    body = {"to": bob.address, "parts": [{"text": "read it"}, {"url": url}]}
    task = (await alice.ask("POST", "/v1/tasks", json=body)).json()["id"]

    assert (await bob.ask("GET", f"/v1/blobs/{named}")).content == content
    made = (await bob.ask("POST", "/v1/blobs", content=result)).json()["url"]
    parts = [{"text": "done"}, {"url": made}]
    body = {"state": "completed", "parts": parts}
    done = await bob.ask("POST", f"/v1/tasks/{task}/status", json=body)
    assert done.is_success, done.text
    answer = await alice.ask("GET", f"/v1/blobs/{hashlib.sha256(result).hexdigest()}")
    assert answer.content == result


async def test_an_agent_at_its_address_serves_who_is_let_in_from_elsewhere(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    await rooms.let_in(bob, alice, "task", "card")
    card = {"description": "x", "version": "1"} | SKILLS
    put = await bob.ask("PUT", f"/v1/agents/{bob.uid}/card", json=card)
    assert put.is_success, put.text

    shown = await alice.http.get(f"/orgs/{ACME}/a2a/{bob.agent.nick}/{CARD}")
    sent = await alice.door(bob.uid, "SendMessage", message=said(), configuration=NOW)

    assert shown.json()["name"] == bob.agent.nick, shown.text
    task = sent.json()["result"]["task"]["id"]
    there = (await bob.ask("GET", f"/v1/tasks/{task}")).json()
    assert there["requester"]["nick"] == alice.address[1:]
    listed = (await alice.door(bob.agent.nick, "ListTasks")).json()["result"]["tasks"]
    assert [each["id"] for each in listed] == [task]


METHODS = (
    *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask"),
    *("SubscribeToTask", "GetExtendedAgentCard", "CreateTaskPushNotificationConfig"),
    *("GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig",
)


@pytest.mark.requirement("guest-learns-nothing")
@pytest.mark.parametrize("method", METHODS)
async def test_who_is_not_let_in_is_answered_as_for_nobody_at_every_method(
    rooms: TwoRooms, alice: Caller, bob: Caller, method: str
):
    other, ended, card = [await rooms.caller(nick, ACME) for nick in ("carl", "dora", "emil")]
    await rooms.let_in(other, alice, "message")
    await rooms.let_in(ended, alice, "task", "card", expires_at=2.0)
    await rooms.let_in(card, alice, "card" if method != "GetExtendedAgentCard" else "message")
    theirs = (await bob.ask("POST", "/v1/tasks", json={"to": other.agent.nick, "text": "x"})).json()
    refs = ["nobody", "f" * 32, "nobody.acme", "x.y.z", "maria"]
    refs += [each for one in (bob, other, ended, card) for each in (one.agent.nick, one.uid)]
    answers = set()
    for ref in refs:
        for task in ("f" * 32, theirs["id"]):
            answer = await alice.door(ref, method, **call(method, task))
            body = answer.text.replace(ref, "REF").replace(task, "TASK").replace("REF.acme", "REF")
            headers = {k: v for k, v in answer.headers.items() if k != "date"}
            headers.pop("content-length", "")
            answers.add((answer.status_code, body, json.dumps(headers, sort_keys=True)))

    assert len(answers) == 1, answers
    assert "cannot be reached" in next(iter(answers))[1]


async def test_the_other_api_takes_no_key_of_another_organisation(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    await rooms.let_in(bob, alice, "task", "card", "message")

    for path in ("/v1/agents", "/v1/tasks", "/v1/inbox", f"/v1/agents/{bob.agent.nick}"):
        answer = await alice.http.get(f"/orgs/{ACME}{path}")
        assert answer.status_code == 401
        assert "which was not asked" in answer.json()["detail"]


async def test_a_guest_acts_in_the_default_organisation_by_the_same_rule(
    rooms: TwoRooms, bob: Caller
):
    carl = await rooms.caller("carl")
    await rooms.let_in(carl, bob, "task")

    sent = await bob.door(carl.agent.nick, "SendMessage", HOME, message=said(), configuration=NOW)
    shown = await bob.ask("GET", f"/v1/tasks/{sent.json()['result']['task']['id']}")

    assert shown.json()["worker"]["nick"] == carl.address[1:]


@pytest.mark.requirement("guest-learns-nothing")
async def test_tasks_of_others_there_are_not_found_by_a_guest(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    await rooms.let_in(bob, alice, "task")
    carl = await rooms.caller("carl", ACME)
    theirs = (await carl.ask("POST", "/v1/tasks", json={"to": bob.agent.nick, "text": "x"})).json()

    shown = [await alice.ask("GET", f"/v1/tasks/{task}") for task in (theirs["id"], "f" * 32)]
    there = [
        (await alice.door(bob.uid, "GetTask", id=task)).json() for task in (theirs["id"], "f" * 32)
    ]

    assert {each.status_code for each in shown} == {404}
    assert len({json.dumps(each).replace(theirs["id"], "f" * 32) for each in there}) == 1


async def test_nothing_is_stored_behind_a_revoke_that_has_returned(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    grant = await rooms.let_in(bob, alice, "task")
    returned = False

    async def send(number: int) -> bool:
        begun = returned
        answer = await alice.ask(
            "POST", "/v1/tasks", json={"to": bob.address, "text": f"number {number}"}
        )
        assert answer.status_code in (201, 403)
        assert not (begun and answer.status_code == 201)
        return answer.status_code == 201

    async def revoke() -> int:
        nonlocal returned
        await asyncio.sleep(0)
        await rooms.revoke(grant, bob)
        returned = True
        return len((await bob.ask("GET", "/v1/tasks", params={"limit": 500})).json()["tasks"])

    *sent, stored = await asyncio.gather(*(send(n) for n in range(40)), revoke())

    later = len((await bob.ask("GET", "/v1/tasks", params={"limit": 500})).json()["tasks"])
    assert stored == later == sum(sent)


async def test_pushes_to_a_guest_are_signed_as_it_expects_and_end_with_the_grant(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    grant = await rooms.let_in(bob, alice, "task")
    task = (await delegated(alice, bob))["id"]
    config = call("CreateTaskPushNotificationConfig", task) | {"url": "https://1.1.1.1:9/hook"}
    made = await alice.door(bob.uid, "CreateTaskPushNotificationConfig", **config)
    assert "result" in made.json(), made.text
    await reported(bob, task, "working")
    pusher = rooms.acme.pushes.pusher
    (row,) = await rooms.acme.database.read(lambda store: store.pushes.of_task(task))

    seq = (await rooms.acme.tasks.get(task)).seq
    push = PushRow("push_1", row.key, task, seq)
    sent = await rooms.acme.database.read(
        lambda store: changes.request(store, row, push, pusher.key, pusher.sealer, NOON)
    )
    keys = (await alice.ask("GET", "/v1/webhooks/keys")).json()
    secret = base64.b64decode(keys["secret"].removeprefix("whsec_"))
    signed = f"push_1.{int(NOON)}.".encode() + sent.body
    expected = base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()
    assert f"v1,{expected}" in dict(sent.headers)["webhook-signature"].split(" ")
    assert (await alice.ask("GET", f"/v1/tasks/{task}/pushes")).is_success

    def stopped(store: Store) -> str:
        return stopped_of(store, Receiver.of(row), time.time())

    assert await rooms.acme.database.read(stopped) == ""
    await rooms.revoke(grant, bob)
    assert await rooms.acme.database.read(stopped) == NOT_LET_IN
    deleted = await alice.door(bob.uid, "DeleteTaskPushNotificationConfig", taskId=task, id=row.id)
    assert "result" in deleted.json(), deleted.text


async def test_inside_an_organisation_a_task_for_who_is_reached_by_grants_alone_needs_one(
    rooms: TwoRooms, bob: Caller
):
    carl = await rooms.caller("carl", ACME)
    skill = {"id": "paint", "name": "paint", "description": "x", "tags": ["x"]}
    card = {"description": "x", "version": "1", "skills": [skill]}
    assert (await bob.ask("PUT", f"/v1/agents/{bob.uid}/card", json=card)).is_success
    by_skill = {"skill": "paint", "text": "x"}
    assert (await carl.ask("POST", "/v1/tasks", json=by_skill)).status_code == 201
    only = await bob.ask("PUT", "/v1/grants/only", json={"grants_only": True})
    assert only.is_success, only.text

    ref = bob.agent.nick
    refused = [
        await carl.ask("POST", "/v1/tasks", json={"to": ref, "text": "x"}),
        await carl.door(ref, "SendMessage", message=said(), configuration=NOW),
    ]
    assert {each.status_code for each in refused} == {403}
    assert (await carl.ask("POST", "/v1/tasks", json=by_skill)).status_code == 404
    await rooms.let_in(bob, carl, "task")
    taken = [
        await carl.ask("POST", "/v1/tasks", json={"to": ref, "text": "x"}),
        await carl.door(ref, "SendMessage", message=said(), configuration=NOW),
        await carl.ask("POST", "/v1/tasks", json=by_skill),
    ]
    assert [each.status_code for each in taken] == [201, 200, 201]


@pytest.mark.requirement("guest-learns-nothing")
async def test_an_organisation_that_there_is_not_answers_a_guest_as_one_that_there_is(
    rooms: TwoRooms, alice: Caller, bob: Caller
):
    dora = await rooms.caller("dora", ACME)
    for caller in (alice, dora):
        for ref in (bob.agent.nick, bob.uid):
            found = [
                await caller.door(ref, "GetTask", org, id="f" * 32)
                for org in ({ACME, HOME} - {caller.agent.org} | {"none"})
            ]
            said = {
                each.text.replace(ACME, "ORG").replace("none", "ORG").replace(HOME, "ORG")
                for each in found
            }
            assert len(said) == 1, said
            assert {each.status_code for each in found} == {403}
