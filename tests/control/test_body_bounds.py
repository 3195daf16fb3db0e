"""What the body of a request may hold, at every route that reads JSON and at the A2A address of an agent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx2
import pytest

from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.limits import MAX_BODY, MAX_DEPTH, MAX_TEMPLATE_BODY, MAX_VALUES
from tests.control.conforming import contract
from tests.control.taskroom import TaskRoom, door_of, emptied, task_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("json-bounded", "mend-json-nested")]

JSON = {"Content-Type": "application/json"}
MANY = b"{" + b",".join(b'"%d":[[[]]]' % n for n in range(20_000)) + b"}"
DEEP = b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)
HALF = b'{"to":"@bob","text":"\\ud800"}'


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture
async def room(shared: TaskRoom) -> AsyncGenerator[TaskRoom]:
    async with emptied(shared) as room:
        yield room


def read_as_json() -> Iterator[tuple[str, str]]:
    """Method and path of each route that reads JSON."""
    for path, operations in contract().document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            installation = path.startswith(("/v1/orgs", "/v1/backup"))  # of a whole post room
            if "application/json" in content and not installation:
                yield method.upper(), path.replace("{", "").replace("}", "")


def said(**parts: Any) -> str:
    return json.dumps({"to": "@bob", "text": "hello", **parts})


async def test_every_route_refuses_what_holds_too_much(room: TaskRoom) -> None:
    routes = list(read_as_json())
    assert len(routes) > 20
    for method, path in routes:
        for body, status in ((MANY, 413), (DEEP, 422), (HALF, 422)):
            answer = await room.api.request(method, path, content=body, headers=JSON)
            assert answer.status_code == status, (method, path, body[:40], answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
    answer = await room.api.post("/v1/messages", content=MANY, headers=JSON)
    assert f"more than {MAX_VALUES} values" in answer.json()["detail"]
    assert "--file" in answer.json()["remedy"]


async def test_a_workers_door_refuses_it_too(room: TaskRoom) -> None:
    worker = await room.worker("bob")
    events = b'{"events":[{"type":"text","input":' + MANY + b"}]}"
    async with door_of(room, worker) as door:
        path = f"/v1/workers/{worker.uid}/sdk-events"
        answer = await door.post(path, content=events, headers=JSON)
    assert answer.status_code == 413


async def test_a_message_within_the_bounds_is_taken(room: TaskRoom) -> None:
    await room.worker("bob", start=False)
    rows = [{"name": "a, [b] {c}", "value": n} for n in range((MAX_VALUES - 200) // 3)]
    parts = [{"data": {"rows": rows}}, {"text": '[{,"\\' * 20_000}]
    answer = await room.api.post("/v1/messages", json={"to": "@bob", "parts": parts})
    assert answer.status_code == 201, answer.text


async def test_what_grows_beyond_the_bound_on_its_way_is_refused(room: TaskRoom) -> None:
    await room.worker("bob", start=False)
    data = list(range(MAX_VALUES - 8))
    answer = await room.api.post("/v1/messages", json={"to": "@bob", "parts": [{"data": data}]})
    assert answer.status_code == 413
    assert "values" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["", "/message:send"])
@pytest.mark.parametrize("body", [MANY, DEEP * 2, HALF])
async def test_the_a2a_address_refuses_it(room: TaskRoom, path: str, body: bytes) -> None:
    worker = await room.worker("bob", start=False)
    headers = {**JSON, "A2A-Version": "1.0"}
    url = f"/a2a/{worker.uid}{path}"
    if body == HALF:
        body = b'{"jsonrpc":"2.0","id":"\\ud800","method":"GetTask"}'
    elif body != MANY:
        body = b'{"a":' * 129 + b"1" + b"}" * 129
    answer = await room.api.post(url, content=body, headers=headers)
    assert answer.status_code == (400 if path else 200), answer.text
    assert answer.json()["error"]["code"] in {-32600, -32700, 400}


@pytest.mark.requirement("json-bounded")
@pytest.mark.parametrize(
    "body",
    [
        '{"to":"@bob","text":"\\ud800"}',
        '{"to":"@bob","text":"a","subject":"\\udfff"}',
        '{"to":"@b\\ud800","text":"a"}',
        '{"to":"@bob","text":"a","\\ud800":1}',
        '{"to":"@bob","text":"a","key":"\\ud800"}',
        '{"to":"@bob","parts":[{"data":{"a":["\\ud800"]}}]}',
        '{"to":"@bob","parts":[{"data":{"\\udc00\\ud800":1}}]}',
        '{"to":"@bob","parts":[{"url":"https://x.invalid/","filename":"\\ud800"}]}',
        '{"to":"@bob","parts":[{"text":"a","mediaType":"text/\\ud800"}]}',
        '{"to":"@bob","parts":[{"text":"a","metadata":{"a":"\\ud800"}}]}',
    ],
)
@pytest.mark.parametrize("path", ["messages", "tasks"])
async def test_half_a_character_is_bad_input_wherever_it_stands(
    room: TaskRoom, path: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    await room.worker("bob", start=False)
    for kind in ("application/json", "application/json; charset=utf-8", "application/x+json"):
        answer = await room.api.post(f"/v1/{path}", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 422, answer.text
    assert "failed" not in caplog.text


@pytest.mark.requirement("json-bounded")
async def test_half_a_character_in_an_address_breaks_nothing(room: TaskRoom) -> None:
    half = "%ED%A0%80"
    for path in (f"messages?text={half}", f"agents/{half}", f"agents?text={half}", f"tasks/{half}"):
        answer = await httpx2_get(room, f"/v1/{path}")
        assert answer in {200, 404, 422}, path


async def httpx2_get(room: TaskRoom, path: str) -> int:
    return (await room.api.get(httpx2.URL(f"http://{room.site.host}{path}"))).status_code


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_record_on_the_bus_that_holds_too_much_is_dead_with_the_reason(
    room: TaskRoom,
) -> None:
    ann, bob = await room.worker("ann"), await room.worker("bob")
    message = {"messageId": "m1", "role": "ROLE_AGENT", "parts": [{"data": [[[]]] * MAX_VALUES}]}
    whole = Envelope("m1", bob.uid, {**message, "parts": [{"text": "x"}]}, 1.0).encode()
    record = json.loads(whole) | {"message": message}
    await ann.bus.publish(subjects.inbox(bob.uid, ann.uid), json.dumps(record).encode())
    await room.folded("INBOX")
    found = (await room.api.get("/v1/messages", params={"with": "@bob"})).json()["messages"]
    assert [(mail["state"], mail["reason"]) for mail in found] == [
        ("dead", f"malformed: more than {MAX_VALUES} values")
    ]


async def test_only_a_template_may_be_long(room: TaskRoom) -> None:
    long = json.dumps({"template": "x" * (MAX_BODY + 1)}).encode()
    for path, status in (
        ("messages", 413),
        ("tasks", 413),
        ("agents", 413),
        ("workers", 422),
        ("workers/x/restart", 404),
    ):
        answer = await room.api.post(f"/v1/{path}", content=long, headers=JSON)
        assert answer.status_code == status, (path, answer.text)
    longer = json.dumps({"template": "x" * (MAX_TEMPLATE_BODY + 1)}).encode()
    answer = await room.api.post("/v1/workers", content=longer, headers=JSON)
    assert answer.status_code == 413
