"""A stranger, who came by open registration, over the whole API: nothing of others, but for whom a grant ties to it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from postroom.control.api import OPERATIONS
from postroom.control.openapi.examples import BODIES
from postroom.control.ops.table import ASK, REST, SOCKET, Operation
from postroom.store.grants import Admission, GrantRow
from tests.control.taskroom import TaskRoom, task_room
from tests.control.test_keys import bearer

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("stranger-sees-own")]

HUSHED = "hushed"
"""Is in every text and name of the others."""

NEW = re.compile(r"[0-9a-f]{32}|[0-9-]{10}T[0-9:.]+Z|again in [0-9]+ s")
"""An id, or a time."""

NAMING = ("to", "agent", "granter", "grantee", "nick", "worker", "recipient_id", "grantee_id")
"""Fields of bodies that name agents."""

EXAMPLES = BODIES | {
    "PlainMessageBody": {"recipient_id": "@alice", "subject": "", "body": "hello"},
    "AuthorizationBody": {"grantee_id": "@alice"},
}
"""Bodies of all operations, also of those that are in no document."""


@dataclass
class Place:
    """An organisation that works, and a stranger in it.

    Attributes:
        references: what names something of the others, each beside one of its form that names nothing.
        secrets: what no answer to a stranger may have.
    """

    room: TaskRoom
    api: httpx2.AsyncClient
    me: dict[str, Any]
    bot: dict[str, Any] = field(default_factory=dict)
    references: dict[str, tuple[str, str]] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    limits = {"limit_strangers": 100_000, "limit_open": 100_000}
    async with task_room(tmp_path_factory.mktemp("room"), **limits) as room:
        await room.parts.database.write(lambda store: store.grants.admit(Admission("open")))
        async with bearer(room, "") as nobody:
            del nobody.headers["Authorization"]
            said = {"display_name": "mallory"}
            joined = (await nobody.post("/v1/join", json=said)).json()
        async with bearer(room, joined["key"]["key"]) as api:
            api.event_hooks = {}  # some paths are in no document
            found = Place(room, api, joined)
            await inhabit(found)
            yield found


async def inhabit(place: Place) -> None:
    """Others who write, delegate, post, announce and upload."""
    api = place.room.api

    async def did(path: str, **body: Any) -> dict[str, Any]:
        made = await api.post(path, json=body)
        assert made.status_code in (200, 201), (path, made.text)
        return made.json()

    skill = {"id": HUSHED, "name": HUSHED, "description": HUSHED, "tags": [HUSHED]}
    card = {"description": f"{HUSHED} work", "skills": [skill]}
    bot = place.bot = await did("/v1/agents", nick=f"{HUSHED}-bot", card=card)
    ann = await did("/v1/people", nick=f"{HUSHED}-ann")
    invite = await did("/v1/invites")
    message = await did(
        "/v1/messages", to=f"@{HUSHED}-bot", text=f"{HUSHED} words", thread=f"{HUSHED}-thread"
    )
    task = await did("/v1/tasks", to=f"@{HUSHED}-bot", text=f"{HUSHED} task")
    post = await did("/v1/projects/main/posts", text=f"{HUSHED} post")
    await did("/v1/announcements", text=f"{HUSHED} announcement")
    stored = await api.post(
        "/v1/blobs", content=HUSHED.encode(), headers={"Content-Type": "text/plain"}
    )
    none = uuid4().hex
    place.references = {
        "nick": (f"{HUSHED}-bot", "zoltan-bot"),
        "@nick": (f"@{HUSHED}-ann", "@zoltan-ann"),
        "address": (f"@{HUSHED}-bot.default", "@zoltan-bot.default"),
        "uid": (bot["uid"], none),
        "uid of a person": (ann["uid"], none),
        "uid of the owner": (place.room.owner.uid, none),
        "owner": ("maria", "zoltan"),
        "message": (message["id"], none),
        "task": (task["id"], none),
        "beginning": (task["id"][:8], none[:8]),
        "post": (post["id"], none),
        "key": (bot["key"]["id"], none),
        "invite": (invite["id"], none[:16]),
        "blob": (stored.json()["sha256"], none * 2),
        "thread": (f"{HUSHED}-thread", "zoltan-thread"),
        "skill": (HUSHED, "zoltan"),
        "project": ("main", "absent"),
    }
    uids = {bot["uid"], ann["uid"], place.room.owner.uid}
    place.secrets = {HUSHED, "maria", *uids, message["id"], task["id"], post["id"]}
    place.secrets |= {bot["key"]["id"], invite["id"], stored.json()["sha256"]}


Asked = tuple[str, str, Any]


def asked(operation: Operation, reference: str) -> Iterator[Asked]:
    """Every request for an operation that has `reference` in one of its fields, or in none."""
    path = operation.path.replace(REST, "x")
    for name in operation.places.values():
        path = path.replace(f"{{{name}}}", reference)
    example = EXAMPLES.get(_model(operation), {}) if operation.body is not None else None
    method = "GET" if operation.method == SOCKET else operation.method
    yield method, path, example
    for name in (shown for shown, each in operation.query.items() if _is_text(each.hint)):
        yield method, f"{path}?{name}={reference.replace('@', '%40')}", example
    for name, value in (example or {}).items():
        if isinstance(value, str):
            yield method, path, {**(example or {}), name: reference}
    if example is not None:
        for name in (*NAMING, "reply_to", "thread", "context", "skill"):
            yield method, path, {**example, name: reference}


def _is_text(hint: Any) -> bool:
    return getattr(hint, "__origin__", hint) is str


def _model(operation: Operation) -> str:
    hint = operation.body.hint if operation.body is not None else None
    names = [getattr(hint, "__name__", ""), *(a.__name__ for a in getattr(hint, "__args__", ()))]
    return next((name for name in names if name in EXAMPLES), "")


async def answered(api: httpx2.AsyncClient, what: Asked) -> tuple[int, str]:
    method, path, body = what
    async with api.stream(method, path, json=body) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return answer.status_code, ""  # it goes on, and what it has is read elsewhere
        async with aclosing(answer.aiter_bytes()) as pieces:
            content = b"".join([piece async for piece in pieces])
    return answer.status_code, content.decode(errors="replace")


IN_TABLE = [
    each
    for each in OPERATIONS
    if each.method != ASK
    and (not each.hidden or each.path.startswith("/api/"))
    and not each.takes & {"orgs", "measuring"}
    and (each.changes or not each.demand.open)
]
"""Those of one organisation, but for what everybody may know."""


@pytest.mark.parametrize("operation", IN_TABLE, ids=[f"{o.method} {o.path}" for o in IN_TABLE])
async def test_no_operation_tells_a_stranger_of_others(place: Place, operation: Operation) -> None:
    for what, (theirs, nobodys) in place.references.items():
        pairs = zip(asked(operation, theirs), asked(operation, nobodys), strict=True)
        for one, other in pairs:
            status, text = await answered(place.api, one)
            assert status != 500, (what, one, text)
            if (
                operation.name == "room.status"
            ):  # what it has asked its owner for is in its own words
                text = json.dumps(json.loads(text) | {"approvals": []})
            said = text.replace(theirs, "REF")
            found = {each for each in place.secrets if each != theirs and each in said}
            # What it has said itself it may hear again.
            found -= {each for each in found if each in json.dumps(one) or each in theirs}
            assert not found, (what, one, text)
            absent, empty = await answered(place.api, other)
            assert status == absent, (what, one, text, empty)
            if operation.name not in {"keys.create", "people.me"} and status >= 400:
                nothing = NEW.sub("NEW", empty.replace(nobodys, "REF"))
                assert NEW.sub("NEW", said) == nothing, (what, one)


async def test_the_same_questions_have_answers_for_who_operates(place: Place) -> None:
    """Otherwise the test before would prove nothing."""
    told = set()
    for operation in IN_TABLE:
        if operation.method != "GET" or operation.hidden:
            continue
        for theirs, _ in place.references.values():
            for one in asked(operation, theirs):
                if "wait" not in one[1] and not one[1].startswith("/v1/sessions/stream"):
                    status, text = await answered(place.room.api, one)
                    if status == 200 and HUSHED in text:
                        told.add(operation.name)

    wanted = {"agents.list", "agents.show", "agents.card", "people.list", "messages.search"}
    assert wanted | {"messages.show", "messages.chat", "tasks.show", "feeds.posts"} <= told


@pytest.mark.parametrize("path", ["", "/.well-known/agent-card.json", "/http"])
async def test_nor_does_the_a2a_address_of_an_agent(place: Place, path: str) -> None:
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    for method in ("GET", "POST"):
        body = call if method == "POST" else None
        for theirs, nobodys in list(place.references.values())[:7]:
            one = await answered(place.api, (method, f"/a2a/{theirs}{path}", body))
            other = await answered(place.api, (method, f"/a2a/{nobodys}{path}", body))
            assert one[0] == other[0]
            assert one[1].replace(theirs, "REF") == other[1].replace(nobodys, "REF")


async def test_nor_does_a_tool_of_mcp(place: Place) -> None:
    headers = {
        "Authorization": f"Bearer {place.me['key']['key']}",
        "Accept": "application/json, text/event-stream",
    }

    async def called(api: httpx2.AsyncClient, method: str, params: dict[str, Any]) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await api.post("/mcp?tools=all", json=body)
        assert answer.status_code == 200, answer.text
        text = answer.text.partition("data: ")[2] or answer.text
        return json.loads(text)["result"]

    url = f"http://{place.room.site.host}"
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=20, verify=False) as api:
        tools = (await called(api, "tools/list", {}))["tools"]
        assert len(tools) > 10
        for tool in tools:
            if tool["name"] in {"a2a_rotate_api_key", "a2a_register_agent"}:
                continue
            fields = tool["inputSchema"].get("properties", {})
            texts = [name for name, said in fields.items() if said.get("type") == "string"]
            for theirs, nobodys in place.references.values():
                said = []
                for reference in (theirs, nobodys):
                    given = {name: reference for name in texts if "wait" not in name}
                    params = {"name": tool["name"], "arguments": given}
                    answer = json.dumps(await called(api, "tools/call", params))
                    answer = answer.replace(reference.removeprefix("@"), "REF")
                    said.append(NEW.sub("NEW", answer))
                assert said[0] == said[1], tool["name"]
                assert not {each for each in place.secrets if each in said[0]}


async def test_a_grant_ties_one_agent_to_a_stranger_and_shows_what_it_covers(place: Place) -> None:
    bot, stranger = place.bot["uid"], place.me["uid"]

    async def granted(scopes: str, **more: Any) -> None:
        row = GrantRow("g1", bot, stranger, scopes, bot, 1.0, **more)
        await place.room.parts.database.write(lambda store: store.grants.put(row))

    async def seen() -> dict[str, dict[str, Any]]:
        listed = (await place.api.get("/v1/agents")).json()["agents"]
        return {one["nick"]: one for one in listed}

    me = place.me["nick"]
    assert set(await seen()) == {me}
    await granted("message")
    found = (await seen())[f"{HUSHED}-bot"]
    assert (found["card"], found["online"], found["seen_at"]) == (None, False, None)
    sent = await place.api.post("/v1/messages", json={"to": f"@{HUSHED}-bot", "text": "hello"})
    assert sent.status_code == 201
    assert (await place.api.get(f"/v1/agents/{bot}/card")).status_code == 404
    for body in ({"to": f"@{HUSHED}-bot", "text": "x"}, {"skill": HUSHED, "text": "x"}):
        assert (await place.api.post("/v1/tasks", json=body)).status_code == 403

    await granted("message card")
    assert (await seen())[f"{HUSHED}-bot"]["card"]["skills"][0]["id"] == HUSHED
    assert (await place.api.get(f"/v1/agents/{bot}/card")).status_code == 200
    found = (await place.api.get("/v1/agents", params={"skill": HUSHED})).json()["agents"]
    assert [one["nick"] for one in found] == [f"{HUSHED}-bot"]

    await granted("message card", revoked_at=2.0)
    assert set(await seen()) == {me}
    assert (await place.api.get(f"/v1/agents/{bot}")).status_code == 403
    # Those of an organisation see who has come in.
    members = (await place.room.api.get("/v1/agents")).json()["agents"]
    assert me in [one["nick"] for one in members]


async def test_a_stranger_reads_no_file_of_everybody_and_names_none(place: Place) -> None:
    sha256, absent = place.references["blob"]
    ours = GrantRow("g2", place.bot["uid"], place.me["uid"], "message", place.bot["uid"], 1.0)
    await place.room.parts.database.write(lambda store: store.grants.put(ours))
    said = []
    for named in (sha256, absent):
        part = {"url": f"blob:sha256:{named}", "mediaType": "text/plain"}
        body = {"to": f"@{HUSHED}-bot", "parts": [part]}
        said.append(await place.api.post("/v1/messages", json=body))
    assert {each.status_code for each in said} == {422}
    assert said[0].json() == said[1].json()
    uploaded = await place.api.post(
        "/v1/blobs", content=b"x", headers={"Content-Type": "text/plain"}
    )
    assert uploaded.status_code == 403
    # What a member sends it, it reads.
    mine = GrantRow("g3", place.me["uid"], place.room.owner.uid, "message", "", 1.0)
    await place.room.parts.database.write(lambda store: store.grants.put(mine))
    part = {"url": f"blob:sha256:{sha256}", "mediaType": "text/plain"}
    body = {"to": place.me["uid"], "parts": [part]}
    sent = await place.room.api.post("/v1/messages", json=body)
    assert sent.status_code == 201, sent.text
    assert (await place.api.get(f"/v1/blobs/{sha256}")).text == HUSHED


OWN = {"approvals": [], "grants": []}
"""What of the status is its own."""


async def test_a_stranger_stays_one_whatever_its_key_may_do(place: Place) -> None:
    body = {"agent": place.me["uid"], "scopes": ["read", "operate", "admin"]}
    made = await place.room.api.post("/v1/keys", json=body)
    async with bearer(place.room, made.json()["key"]) as more:
        for path in ("/v1/people", "/v1/workers", "/v1/audit", "/v1/events", "/v1/invites"):
            assert (await more.get(path)).status_code == 403
        assert (await more.post("/v1/people", json={"nick": "eve"})).status_code == 403
        assert (await more.get("/v1/me")).json()["scopes"] == ["read"]
        keys = (await more.get("/v1/keys")).json()["keys"]
        assert {key["agent"]["uid"] for key in keys} == {place.me["uid"]}
        assert HUSHED not in json.dumps((await more.get("/v1/status")).json() | OWN)
