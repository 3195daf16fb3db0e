"""Push notifications of a whole control plane: configs by A2A, what the API shows of them, and their signatures."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from postroom.http.outbound import OutboundPolicy
from postroom.protocol.principal import Scope
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, Hand, TaskRoom, emptied, task_room
from tests.push.receivers import Receiver, answering, receiver

pytestmark = pytest.mark.anyio

VERSION = {"A2A-Version": "1.0"}


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


def open_for(room: TaskRoom, *hooks: Receiver) -> None:
    """Open the places of receivers, as the operator would by `egress.allow_private`."""
    places = [f"127.0.0.1:{hook.port}" for hook in hooks]
    room.parts.pushes.pusher.sender._policy = OutboundPolicy.parse(places)


async def call(room: TaskRoom, ref: str, method: str, key: str = "", **params: Any) -> Any:
    headers = VERSION | ({"Authorization": f"Bearer {key}"} if key else {})
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = (await room.api.post(f"/a2a/{ref}", json=body, headers=headers)).json()
    return answer["result"] if "result" in answer else answer["error"]["code"]


async def sent(room: TaskRoom, worker: Hand, message: str, url: str, key: str = "") -> str:
    """A task that was given by A2A, with a config in the same call."""
    said = {"messageId": message, "role": "ROLE_USER", "parts": [{"text": "do it"}]}
    push = {"url": url, "token": "said-once"}
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": push}
    answer = await call(
        room, worker.uid, "SendMessage", key, message=said, configuration=configuration
    )
    return answer["task"]["id"]


async def done(worker: Hand, task: str) -> None:
    await worker.take(task)
    await worker.say(task, TaskState.WORKING, "at it", attempt=1)
    await worker.make(task, "42")
    await worker.say(task, TaskState.COMPLETED, "done")


async def key_of(room: TaskRoom, nick: str) -> tuple[str, str]:
    """An agent that Postroom does not run: its key and the key's id."""
    body = {"nick": f"{nick}-{secrets.token_hex(4)}", "kind": "external"}  # a name stays taken
    answer = await room.api.post("/v1/agents", json=body)
    assert answer.status_code == 201, answer.text
    key = answer.json()["key"]
    return key["key"], key["id"]


@pytest.mark.requirement("pushes-not-lost")
async def test_a_client_gives_a_task_with_a_url_and_is_told_of_every_change_signed(
    shared: TaskRoom,
):
    async with receiver() as hook, emptied(shared) as room:
        open_for(room, hook)
        bob = await room.worker("bob")
        task = await sent(room, bob, "m-signed", hook.url)
        assert await sent(room, bob, "m-signed", hook.url) == task  # asked twice, pushed once
        await done(bob, task)
        got = await hook.until(3)
        assert hook.what == ["working", "42", "completed"]

        keys = (await room.api.get("/v1/webhooks/keys")).json()
        jwks = (await room.api.get("/.well-known/jwks.json")).json()["keys"]
        (jwk,) = [key for key in jwks if key["kty"] == "OKP"]
        public = Ed25519PublicKey.from_public_bytes(
            base64.urlsafe_b64decode(jwk["x"] + "=" * (-len(jwk["x"]) % 4))
        )
        for each in got:
            each.verify(keys["secret"])
            stamp, both = each.headers["webhook-timestamp"], each.headers["webhook-signature"]
            signature = both.split(" ")[1].removeprefix("v1a,")
            signed = f"{each.id}.{stamp}.".encode() + each.body
            public.verify(base64.b64decode(signature), signed)
        shown = (await room.api.get(f"/v1/tasks/{task}/pushes")).json()["pushes"]
        assert [(push["what"], push["attempts"]) for push in shown] == [
            ("working", 1),
            ("artifact", 1),
            ("completed", 1),
        ]


async def test_configs_by_a2a_are_for_who_made_them_and_show_no_secret(shared: TaskRoom):
    async with receiver() as hook, emptied(shared) as room:
        open_for(room, hook)
        bob = await room.worker("bob")
        key, _ = await key_of(room, "ext-configs")
        task = await sent(room, bob, "m-configs", hook.url, key)
        made = await call(
            room,
            "bob",
            "CreateTaskPushNotificationConfig",
            key,
            taskId=task,
            id="mine",
            url=hook.url + "2",
            token="never-shown",
            authentication={"scheme": "Bearer", "credentials": "never-shown"},
        )
        assert made["id"] == "mine"
        listed = await call(room, "bob", "ListTaskPushNotificationConfigs", key, taskId=task)
        assert len(listed["configs"]) == 2
        assert "never-shown" not in str([made, listed])
        named = {"taskId": task, "id": "mine"}
        got = await call(room, "bob", "GetTaskPushNotificationConfig", key, **named)
        assert got["url"] == hook.url + "2"

        stranger, _ = await key_of(room, "ext-stranger")
        for method in ("Create", "Get", "Delete"):
            name = f"{method}TaskPushNotificationConfig"
            assert await call(room, "bob", name, stranger, url=hook.url, **named) == -32001
        name = "ListTaskPushNotificationConfigs"
        assert await call(room, "bob", name, stranger, taskId=task) == -32001
        # The operator sees the task, and its pushes, but no config that is another's.
        assert (await call(room, "bob", name, taskId=task))["configs"] == []

        assert await call(room, "bob", "DeleteTaskPushNotificationConfig", key, **named) == {}
        listed = await call(room, "bob", name, key, taskId=task)
        assert len(listed["configs"]) == 1
        await done(bob, task)
        await hook.until(3)
        assert {got.path for got in hook.got} == {"/hook"}
        whose = {"Authorization": f"Bearer {stranger}"}
        hidden = await room.api.get(f"/v1/tasks/{task}/pushes", headers=whose)
        assert hidden.status_code == 404
        whole = (await room.api.get(f"/v1/tasks/{task}/pushes")).json()["pushes"]
        assert len(whole) == 3


async def test_a_push_that_was_given_up_is_an_alert_and_goes_out_again_by_hand(shared: TaskRoom):
    async with receiver(answering(410)) as hook, emptied(shared) as room:
        open_for(room, hook)
        bob = await room.worker("bob")
        key, _ = await key_of(room, "ext-again")
        task = await sent(room, bob, "m-again", hook.url, key)
        await bob.refuse(task, "no")
        await hook.until(1)

        async def pushes() -> list[dict[str, Any]]:
            return (await room.api.get(f"/v1/tasks/{task}/pushes")).json()["pushes"]

        await eventually(lambda: standing(room, task))
        (push,) = await pushes()
        assert (push["state"], push["status"]) == ("given-up", 410)
        hook.answers = [answering(200)]
        whose = {"Authorization": f"Bearer {key}"}
        path = f"/v1/tasks/{task}/pushes/{push['id']}/again"
        again = (await room.api.post(path, headers=whose)).json()
        assert (again["id"], again["state"]) == (push["id"], "pending")
        await hook.until(2)
        assert hook.got[0].id == hook.got[1].id
        await eventually(lambda: no_alert(room, task))
        missing = await room.api.post(f"/v1/tasks/{task}/pushes/push_0/again")
        assert missing.status_code == 404


@pytest.mark.requirement("pushes-not-lost")
async def test_a_key_that_is_revoked_ends_the_pushes_of_its_configs(shared: TaskRoom):
    async with receiver() as hook, emptied(shared) as room:
        open_for(room, hook)
        bob = await room.worker("bob")
        key, key_id = await key_of(room, "ext-revoked")
        task = await sent(room, bob, "m-revoked", hook.url, key)
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, "at it", attempt=1)
        await hook.until(1)
        assert (await room.api.delete(f"/v1/keys/{key_id}")).status_code == 200
        await bob.say(task, TaskState.COMPLETED, "done")
        path = f"/v1/tasks/{task}/pushes"

        async def stopped() -> bool:
            found = (await room.api.get(path)).json()["pushes"]
            return [push["state"] for push in found] == ["delivered", "given-up"]

        await eventually(stopped)
        assert len(hook.got) == 1


async def test_who_may_only_read_gets_no_secret_and_cards_say_that_there_are_pushes(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        await room.worker("bob")
        card = (await room.api.get("/a2a/bob/.well-known/agent-card.json")).json()
        assert card["capabilities"]["pushNotifications"] is True
        body = {"scopes": [Scope.READ.value]}
        key = (await room.api.post("/v1/keys", json=body)).json()["key"]
        reads = {"Authorization": f"Bearer {key}"}
        assert (await room.api.get("/v1/webhooks/keys", headers=reads)).status_code == 403


async def standing(room: TaskRoom, task: str) -> bool:
    return any(f"push of task {task[:8]}" in text for _, text in await room.alerts())


async def no_alert(room: TaskRoom, task: str) -> bool:
    return not await standing(room, task)


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not await condition():  # noqa: ASYNC110 (rows have no event)
            await asyncio.sleep(0.01)
