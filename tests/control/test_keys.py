"""Keys and the people behind them, over the HTTP API: what a key may do, and that it may nothing once it has ended."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from postroom.bus.port import Delivery
from postroom.identity.tokens import new_api_key
from postroom.projection.changes import DEADLETTERS
from postroom.protocol.audit import ALLOWED, API, DENIED, AuditRecord
from postroom.protocol.limits import MAX_API_KEYS
from postroom.protocol.principal import KEY as BY_KEY
from postroom.protocol.principal import USUAL_SCOPES, Principal, Scope
from postroom.protocol.priority import Cancel
from postroom.protocol.receipts import Reason
from postroom_a2a.times import parse_time
from tests.control.conforming import contract
from tests.control.taskroom import TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio

SECONDS = 20.0
ABSENT = "f" * 32
PARAMETERS = {"name": "absent", "project": "absent", "sha256": "0" * 64}
"""What stands for a parameter of a path; for all others an id that nobody has."""


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@dataclass
class Person:
    """A person, their key, and the API as that key opens it."""

    uid: str
    key_id: str
    secret: str
    api: httpx2.AsyncClient

    async def status(self, path: str = "/v1/me") -> int:
        return (await self.api.get(path)).status_code


def bearer(room: TaskRoom, secret: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {secret}"}
    held: dict[str, list[Any]] = {"response": [contract().hold]}
    return httpx2.AsyncClient(
        base_url=f"http://{room.site.host}",
        headers=headers,
        timeout=SECONDS,
        event_hooks=held,
        verify=False,
    )


@asynccontextmanager
async def person(room: TaskRoom, nick: str, *scopes: Scope, **more: Any) -> AsyncGenerator[Person]:
    body = {"nick": nick, "scopes": [scope.value for scope in scopes], **more}
    made = await room.api.post("/v1/people", json=body)
    assert made.status_code == 201, made.text
    key = made.json()["key"]
    try:
        async with bearer(room, key["key"]) as api:
            yield Person(made.json()["uid"], key["id"], key["key"], api)
    finally:
        await room.api.delete(f"/v1/people/{nick}")


async def followed(
    api: httpx2.AsyncClient, path: str, opened: asyncio.Semaphore | None = None
) -> str:
    """How a stream has ended: its status, if it was no stream."""
    try:
        async with api.stream("GET", path) as stream:
            if stream.status_code != 200:
                return str(stream.status_code)
            if opened is not None:
                opened.release()
            async for _ in stream.aiter_bytes():
                pass
    except httpx2.HTTPError:
        return "broken"
    return "ended"


def acts(room: TaskRoom) -> list[AuditRecord]:
    """What the audit log says of people, in its order."""
    lines = room.parts.installation.audit.files.path.read_bytes().splitlines()
    return [record for line in lines if (record := AuditRecord.decode(line)).by == API]


# ── what each route demands ─────────────────────────────────────────────────────────────────────────────────


async def documented(room: TaskRoom) -> list[tuple[str, str, str]]:
    """Method, path and scope of every route; `any` where every key will do, `none` where none is asked for."""
    document = (await room.api.get("/v1/openapi.json")).json()
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            stated = operation["security"]
            scopes = stated[0]["key"] or ["any"] if stated else ["none"]
            found.append((method.upper(), path, scopes[0]))
    return found


async def asked(api: httpx2.AsyncClient, method: str, path: str) -> int | str:
    """The status of a call with parameters that name nothing, or `scope` where one was missing; what a stream holds is
    not read.
    """
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        path = path.replace(f"{{{name}}}", PARAMETERS.get(name, ABSENT))
    body = None if method in {"GET", "HEAD", "DELETE"} else {}
    async with api.stream(method, path, json=body) as answer:
        if answer.status_code == 403 and method != "HEAD":
            await answer.aread()
            return "scope" if "this needs the scope" in answer.text else 403
        return answer.status_code


OPEN = {"/livez", "/readyz", "/v1/openapi.json", "/v1/join", "/.well-known/jwks.json"}

PRIVILEGED = {
    "admin": {
        ("POST", "/v1/people"),
        ("DELETE", "/v1/people/{ref}"),
        ("POST", "/v1/credentials"),
        ("POST", "/v1/trust/rotate"),
        ("DELETE", "/v1/retention"),
        ("POST", "/v1/shutdown"),
    },
    "operate": {
        ("POST", "/v1/workers"),
        ("DELETE", "/v1/workers/{ref}"),
        ("GET", "/v1/audit"),
        ("GET", "/v1/events"),
        ("DELETE", "/v1/alerts"),
        ("POST", "/v1/deadletters/{letter}/requeue"),
    },
}


@pytest.mark.requirement("key-scopes-demanded")
async def test_every_route_states_a_scope_and_demands_it(shared: TaskRoom) -> None:
    routes = await documented(shared)
    assert {path for _, path, scope in routes if scope == "none"} == OPEN
    assert {path.split("/")[2] for _, path, scope in routes if scope == "any"} == {
        *("me", "keys", "approvals", "workers")
    }
    for scope, named in PRIVILEGED.items():
        assert named <= {(method, path) for method, path, needed in routes if needed == scope}

    async with bearer(shared, new_api_key(shared.owner.uid)) as unknown:
        for method, path, needed in routes:
            if needed != "none":
                assert await asked(unknown, method, path) == 401, (method, path)

    for scope in Scope:
        without = [each for each in Scope if each is not scope]
        async with (
            person(shared, f"only-{scope}", scope) as only,
            person(shared, f"all-but-{scope}", *without) as rest,
        ):
            for method, path, needed in routes:
                if needed != scope:
                    continue
                refused = 403 if method == "HEAD" else "scope"
                assert await asked(rest.api, method, path) == refused, (method, path)
                # Some are for certain agents alone, whatever the key allows.
                assert await asked(only.api, method, path) not in {401, 500, "scope"}, path


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_person_acts_as_themself_and_a_key_is_shown_once(shared: TaskRoom) -> None:
    async with person(shared, "ann") as ann:
        me = (await ann.api.get("/v1/me")).json()
        sent = await ann.api.post("/v1/messages", json={"to": "@maria", "text": "hello"})
        listed = await ann.api.get("/v1/keys")
        inbox = (await shared.api.get("/v1/inbox", params={"limit": 1})).json()["messages"]

        assert (me["uid"], me["nick"], me["kind"]) == (ann.uid, "ann", "human")
        assert me["scopes"] == ["read", "send", "task"]
        assert sent.status_code == 201
        assert (inbox[0]["text"], inbox[0]["from"]["nick"]) == ("hello", "ann")
        (key,) = listed.json()["keys"]
        assert (key["id"], key["state"], key["agent"]["nick"]) == (ann.key_id, "valid", "ann")
        assert ann.secret not in listed.text
        assert ann.secret.startswith(f"a2a_{ann.uid}_")
        digest = hashlib.sha256(ann.secret.encode()).hexdigest()
        found = await shared.parts.database.read(lambda store: store.keys.bearer(digest))
        assert found is not None
        assert found.id == ann.key_id


@pytest.mark.requirement("key-scopes-demanded")
async def test_a_person_makes_keys_with_no_more_than_their_own(shared: TaskRoom) -> None:
    async with person(shared, "ann", Scope.READ, Scope.SEND, expires_in=3600.0) as ann:
        made = await ann.api.post("/v1/keys", json={"scopes": ["read"], "name": "laptop"})
        assert made.status_code == 201
        # A key that never ends would be worth more than the one that made it.
        mine = (await ann.api.get("/v1/me")).json()["expires_at"]
        assert made.json()["expires_at"] == mine
        for scopes in (["task"], ["read", "admin"], ["operate"]):
            assert (await ann.api.post("/v1/keys", json={"scopes": scopes})).status_code == 403
        others = await ann.api.post("/v1/keys", json={"agent": "@maria", "scopes": ["read"]})
        assert others.status_code == 403
        assert (await ann.api.post("/v1/keys/operator/rotate")).status_code == 403
        assert (await ann.api.get("/v1/keys", params={"agent": "@maria"})).status_code == 403

        async with bearer(shared, made.json()["key"]) as laptop:
            assert (await laptop.get("/v1/inbox")).status_code == 200
            refused = await laptop.post("/v1/messages", json={"to": "@maria", "text": "no"})
            assert refused.status_code == 403
            assert "'send'" in refused.json()["detail"]
            # The bigger key of the same person is not to be had by rotating it.
            assert (await laptop.post(f"/v1/keys/{ann.key_id}/rotate")).status_code == 403


async def test_another_ones_key_looks_absent(shared: TaskRoom) -> None:
    async with person(shared, "ann") as ann, person(shared, "eve") as eve:
        for method, path in (("DELETE", ""), ("POST", "/rotate")):
            answer = await eve.api.request(method, f"/v1/keys/{ann.key_id}{path}")
            nobodys = await eve.api.request(method, f"/v1/keys/{ABSENT}{path}")
            assert answer.status_code == nobodys.status_code == 404
        assert [key["id"] for key in (await eve.api.get("/v1/keys")).json()["keys"]] == [eve.key_id]
        assert await ann.status() == 200


async def test_a_worker_gets_no_key_and_an_agent_not_too_many(shared: TaskRoom) -> None:
    async with emptied(shared) as room, person(room, "ann") as ann:
        await room.worker("alice", start=False)
        refused = await room.api.post("/v1/keys", json={"agent": "@alice"})
        assert refused.status_code == 422
        me = Principal(ann.uid, "default", "ann", "human", USUAL_SCOPES, BY_KEY, ann.key_id)
        for _ in range(MAX_API_KEYS - 1):
            await room.parts.iam.create_key(me, ann.uid)
        full = await ann.api.post("/v1/keys", json={})
        assert len(await room.parts.iam.keys(ann.uid, ended=True)) == MAX_API_KEYS
        assert full.status_code in {429, 503}
        assert str(MAX_API_KEYS) in full.json()["detail"]


async def test_an_expired_key_opens_nothing_and_ends_what_it_opened(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with person(shared, "ann", expires_in=3600.0) as ann:

        def later() -> float:
            return time.time() + 3600.0

        # First only what runs hears of the end: it ends in the middle, or before it has begun.
        monkeypatch.setattr(shared.parts.installation.in_flight, "_clock", later)
        assert await followed(ann.api, "/v1/stream?chat=@maria") in {"broken", "401"}

        monkeypatch.setattr(shared.parts.iam, "_clock", later)
        answer = await ann.api.get("/v1/me")
        assert answer.status_code == 401
        assert "expired" in answer.json()["detail"]


async def test_the_last_use_is_noted(shared: TaskRoom) -> None:
    async with person(shared, "ann") as ann:
        before = time.time()
        for _ in range(3):
            await ann.status()

        async def noted() -> str | None:
            return (await ann.api.get("/v1/keys")).json()["keys"][0]["used_at"]

        async with asyncio.timeout(SECONDS):
            while not (used := await noted()):
                pass
        assert parse_time(used) >= before - 1.0


# ── the end of a key ────────────────────────────────────────────────────────────────────────────────────────


async def _revoked(room: TaskRoom, who: Person) -> None:
    assert (await room.api.delete(f"/v1/keys/{who.key_id}")).json()["state"] == "revoked"


async def _rotated(room: TaskRoom, who: Person) -> None:
    answer = await who.api.post(f"/v1/keys/{who.key_id}/rotate")
    assert answer.status_code == 201
    async with bearer(room, answer.json()["key"]) as again:
        me = (await again.get("/v1/me")).json()
        assert (me["uid"], me["scopes"]) == (who.uid, [scope.value for scope in Scope])


async def _removed(room: TaskRoom, who: Person) -> None:
    assert (await room.api.delete(f"/v1/people/{who.uid}")).status_code == 200


STREAMS = (
    "/v1/stream?chat=@maria",
    "/v1/stream?project=main",
    "/v1/inbox/stream",
    "/v1/events",
    "/v1/audit?follow=true&limit=1",
)


@pytest.mark.requirement("key-scopes-demanded")
@pytest.mark.parametrize("end", [_revoked, _rotated, _removed])
async def test_the_end_of_a_key_ends_what_it_opened(shared: TaskRoom, end: Any) -> None:
    async with person(shared, "ann", *Scope) as ann:
        waited = await ann.api.post("/v1/messages", json={"to": "@maria", "text": "wait for it"})
        opened = asyncio.Semaphore(0)

        async def follow(path: str) -> None:
            async with bearer(shared, ann.secret) as own:
                assert await followed(own, path, opened) == "broken", path

        async def wait() -> httpx2.Response:
            async with bearer(shared, ann.secret) as own:
                path = f"/v1/messages/{waited.json()['id']}?wait=answered&timeout=600"
                return await own.get(path, timeout=600.0)

        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            for path in STREAMS:
                tasks.create_task(follow(path))
            waiting = tasks.create_task(wait())
            for _ in STREAMS:
                await opened.acquire()
            await end(shared, ann)
        assert waiting.result().status_code == 401
        assert waiting.result().headers["www-authenticate"] == "Bearer"
        assert await ann.status() == 401
        assert not shared.parts.installation.in_flight._of_key.get(ann.key_id)


async def test_the_end_of_a_key_ends_an_upload(shared: TaskRoom) -> None:
    async with person(shared, "ann") as ann:
        reader, writer = await asyncio.open_connection("127.0.0.1", shared.site.port)
        head = (
            f"POST /v1/blobs HTTP/1.1\r\nHost: {shared.site.host}\r\n"
            f"Authorization: Bearer {ann.secret}\r\nContent-Length: 1000\r\n\r\n"
        )
        writer.write(head.encode() + b"x" * 10)
        await writer.drain()
        async with asyncio.timeout(SECONDS):
            while not shared.parts.installation.in_flight._of_key.get(ann.key_id):
                assert await shared.api.get("/v1/me")  # each call gives the upload its turn
            await _revoked(shared, ann)
            assert await _rest(reader) == b""
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_a_key_that_is_revoked_while_it_makes_another_makes_none(shared: TaskRoom) -> None:
    async with person(shared, "ann") as ann:
        me = Principal(ann.uid, "default", "ann", "human", USUAL_SCOPES, BY_KEY, ann.key_id)
        await _revoked(shared, ann)
        with pytest.raises(Exception, match="revoked"):
            await shared.parts.iam.create_key(me, ann.uid)


async def test_the_owner_stays(shared: TaskRoom) -> None:
    owner = shared.owner.uid
    assert (await shared.api.delete(f"/v1/people/{owner}")).status_code == 409
    assert (await shared.api.delete("/v1/keys/operator")).status_code == 409
    people = (await shared.api.get("/v1/people")).json()["people"]
    assert [(one["nick"], one["owner"]) for one in people] == [("maria", True)]
    for nick in ("operator", "system", "mar1a", "maria", "postroom"):
        assert (await shared.api.post("/v1/people", json={"nick": nick})).status_code in {409, 422}


# ── what is another's ───────────────────────────────────────────────────────────────────────────────────────


async def _refuse(delivery: Delivery) -> None:
    await delivery.term(Reason.MALFORMED)


@pytest.mark.requirement("key-sees-own-alone")
async def test_what_is_anothers_looks_absent(shared: TaskRoom) -> None:
    async with emptied(shared) as room, person(room, "ann") as ann, person(room, "eve") as eve:
        alice = await room.worker("alice")
        mail = (await ann.api.post("/v1/messages", json={"to": "@maria", "text": "s3cret"})).json()
        asked_for = (
            await ann.api.post("/v1/tasks", json={"to": "@alice", "text": "s3cret"})
        ).json()
        await alice.take(asked_for["id"])
        blob = (await ann.api.post("/v1/blobs", content=b"s3cret")).json()
        gone = (await ann.api.post("/v1/messages", json={"to": "@alice", "text": "s3cret"})).json()
        reads = {
            f"/v1/messages/{mail['id']}",
            f"/v1/messages/{mail['id'][:8]}",
            f"/v1/messages/{mail['id']}?wait=accepted",
            f"/v1/messages/{gone['id']}",
            f"/v1/tasks/{asked_for['id']}",
            f"/v1/tasks/{asked_for['id'][:8]}",
            f"/v1/tasks/{asked_for['id']}?wait=final&timeout=600",
            f"/v1/tasks/{asked_for['id']}/events",
            f"/v1/tasks/{asked_for['id']}/stream",
            f"/v1/blobs/{blob['sha256']}",
        }
        for path in reads - {path for path in reads if "wait=final" in path or "stream" in path}:
            assert await ann.status(path) == 200, path
        for path in reads:
            assert await eve.status(path) == 404, path
        for path, body in (
            (f"/v1/messages/{mail['id']}/seen", None),
            (f"/v1/tasks/{asked_for['id']}/cancel", {}),
            (f"/v1/tasks/{asked_for['id']}/answer", {"text": "yes"}),
        ):
            assert (await eve.api.post(path, json=body)).status_code == 404, path
        reply = {"to": "@ann", "text": "re", "reply_to": mail["id"]}
        assert (await eve.api.post("/v1/messages", json=reply)).status_code == 422

        with room.parts.changes.listen(DEADLETTERS) as listener:
            await alice.bus.consume("INBOX", alice.uid, _refuse)
            await listener.next(SECONDS)
        letter = (await ann.api.get("/v1/deadletters")).json()["deadletters"][0]
        assert letter["from"]["nick"] == "ann"
        assert await eve.status(f"/v1/deadletters/{letter['id']}") == 404
        lists = (
            "inbox",
            "tasks",
            "deadletters",
            "chats/@ann/messages",
            "keys",
            "status",
            "messages",
        )
        asked = ("tasks?requester=@ann", "tasks?worker=@alice", "messages?text=s3cret&with=@ann")
        for path in (*lists, *asked):
            assert "s3cret" not in (await eve.api.get(f"/v1/{path}")).text, path
        seen = (await eve.api.get("/v1/status")).json()
        assert (seen["workers"], seen["alerts"], seen["deadletters"]) == ([], [], 0)
        assert set(seen["server"]) == {"url", "listen", "started_at"}


async def test_who_operates_sees_and_steers_everything(shared: TaskRoom) -> None:
    async with (
        emptied(shared) as room,
        person(room, "ann") as ann,
        person(room, "olga", *Scope) as olga,
    ):
        alice = await room.worker("alice")
        task = (await ann.api.post("/v1/tasks", json={"to": "@alice", "text": "do it"})).json()[
            "id"
        ]
        await alice.listen()
        await alice.take(task)
        assert await olga.status(f"/v1/tasks/{task}") == 200

        canceling = asyncio.create_task(olga.api.post(f"/v1/tasks/{task}/cancel", json={}))
        by, record = await alice.next()
        canceling.cancel()

        # The worker obeys who asked, its owner and the post room, and knows no other.
        assert (by, record) == ("postroom", Cancel(task, ""))


# ── acts ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("audit-acts-explained")
async def test_every_act_is_in_the_audit_log_with_its_principal(shared: TaskRoom) -> None:
    async with person(shared, "ann") as ann:
        sent = await ann.api.post("/v1/messages", json={"to": "@maria", "text": "s3cret text"})
        made = await ann.api.post("/v1/keys", json={"name": "second"})
        await ann.api.post("/v1/shutdown")
        await ann.api.get("/v1/inbox")
        await ann.api.get("/v1/status")
        # Acts of others may still come in: a call that its client has given up is recorded when it ends.
        found = [act for act in acts(shared) if act.principal == ann.uid]

        assert [(act.verb, act.url, act.status, act.verdict) for act in found] == [
            ("POST", "/v1/messages", 201, ALLOWED),
            ("POST", "/v1/keys", 201, ALLOWED),
            ("POST", "/v1/shutdown", 403, DENIED),
        ]
        assert {(act.nick, act.key) for act in found} == {("ann", ann.key_id)}
        assert (found[0].message, found[1].about) == (sent.json()["id"], made.json()["id"])
        written = json.dumps([act.encode().decode() for act in found])
        for secret in ("s3cret", ann.secret, made.json()["key"]):
            assert secret not in written
        shown = await shared.api.get("/v1/audit", params={"worker": "@ann", "limit": 2})
        assert [json.loads(line)["nick"] for line in shown.text.splitlines()] == ["ann", "ann"]
