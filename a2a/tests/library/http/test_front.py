"""The HTTP front end of the library alone, over tasks in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from library.http.memory import CARD, DEADLINE, Server, said
from postroom_a2a.errors import Forbidden, Refused, Unauthorized
from postroom_a2a.http import ClientGone, Exchange, exchange
from postroom_a2a.http.exchange import ClientStalled
from postroom_a2a.task_state import TaskState

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("a2a-http")]

NOW = {"returnImmediately": True}
DONE = TaskState.COMPLETED


# ── JSON-RPC ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body, code, call_id",
    [
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]', -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":true,"method":"GetTask"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"Nothing"}', -32601, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get"}', -32601, 1),
        (b'{"jsonrpc":"2.0","id":"x","method":"GetTask","params":{"id":"no"}}', -32001, "x"),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}', -32004, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig"}', -32003, 1),
    ],
)
async def test_what_is_no_call_is_answered_with_its_code_and_id(
    body: bytes, code: int, call_id: Any
):
    heard = await Server().ask("POST", "/", body)
    assert (heard.status, heard.headers["content-type"]) == (200, "application/json")
    assert (heard.json["error"]["code"], heard.json["id"]) == (code, call_id)


async def test_the_content_type_and_the_version_are_checked():
    server = Server()
    for kind in ("text/plain", "", "application/jsonx"):
        assert (await server.ask("POST", "/", b"{}", Content_Type=kind)).json["error"][
            "code"
        ] == -32005
    for kind in ("application/json; charset=utf-8", "application/a2a+json"):
        assert (await server.ask("POST", "", b"{}", Content_Type=kind)).json["error"][
            "code"
        ] == -32600
    for version in ("99.0", "1.1", "0.2", "x"):
        assert await server.error("GetTask", {"id": "x"}, A2A_Version=version) == -32009
    assert await server.error("GetTask", {"id": "x"}, A2A_Version="") == -32009
    assert await server.error("GetTask", {"id": "x"}, A2A_Version="1.0.3") == -32001
    record = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    heard = await server.ask("POST", "/?A2A-Version=1.0", record, A2A_Version="1.0")
    assert heard.json["error"]["code"] == -32001


async def test_a_body_over_the_limit_is_refused_by_its_announcement_and_by_its_bytes():
    server = Server(max_body=10)
    for headers in ({"Content_Length": "11"}, {}):
        heard = await server.ask("POST", "/", b" " * 11, **headers)
        assert (heard.status, heard.json["id"]) == (413, None)
    heard = await server.ask("POST", "/message:send", b" " * 11)
    assert (heard.status, heard.json["error"]["status"]) == (413, "INVALID_ARGUMENT")


@pytest.mark.parametrize("levels", [129, 500, 900, 100_000])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_body_that_is_nested_deep_is_refused(levels: int, version: str):
    server = Server()
    for deep in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels):
        call = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"metadata":%b}}' % deep
        heard = await server.ask("POST", "/", call, A2A_Version=version)
        assert heard.json["error"]["code"] in (-32600, -32700)
        path = "/message:send" if version == "1.0" else "/v1/message:send"
        heard = await server.ask("POST", path, b'{"message":%b}' % deep, A2A_Version=version)
        assert heard.status == 400


async def test_who_is_refused_is_told_before_the_body_is_read_and_when_to_come_back():
    errors = [Unauthorized("no key"), Forbidden("not you"), Refused("too much")]

    async def admit(_exchange: Exchange) -> str:
        raise errors.pop(0)

    server = Server(admit=admit)
    heard = await server.ask("POST", "/", b"{")
    assert (heard.status, heard.headers["www-authenticate"]) == (401, "Bearer")
    assert heard.json["id"] is None
    heard = await server.ask("GET", "/tasks")
    assert (heard.status, heard.json["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert heard.json["error"]["details"][0]["reason"] == "PERMISSION_DENIED"
    heard = await server.ask("GET", "/tasks")
    assert (heard.status, heard.headers["retry-after"]) == (429, "1")


async def test_a_stream_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "PATIENCE", 0.05)
    server = Server()
    body = json.dumps({"message": said("m")}).encode()
    given = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/message:stream",
        "headers": [(b"a2a-version", b"1.0"), (b"content-type", b"application/json")],
    }

    async def receive() -> dict[str, Any]:
        return given.pop() if given else await never()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await never()  # no room

    async with asyncio.timeout(5):
        with pytest.raises(ClientStalled):
            await server.app.serve(Exchange(scope, receive, send))
        given.append({"type": "http.request", "body": body, "more_body": False})
        await server.app(scope, receive, send)  # as a server calls it: no error of ours
    assert server.tasks.following == 0


async def never() -> Any:
    await asyncio.Event().wait()


async def test_a_send_waits_for_its_task_unless_it_is_told_not_to():
    server = Server()
    task = (await server.result("SendMessage", {"message": said("m"), "configuration": NOW}))[
        "task"
    ]
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    waiting = server.rpc("SendMessage", {"message": said("m")})
    await server.tasks.followed(1)
    await server.tasks.say(task["id"], DONE, "done")
    again = (await waiting.end()).json["result"]["task"]
    assert (again["id"], again["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
    assert server.asked[0].door == "a2a+jsonrpc"


async def test_the_end_of_a_client_ends_its_wait_and_its_stream_at_once():
    server = Server()
    waiting = server.rpc("SendMessage", {"message": said("m")})
    stream = server.rpc("SendStreamingMessage", {"message": said("m")})
    await server.tasks.followed(2)
    await waiting.hang_up()
    await server.tasks.followed(1)
    await stream.hang_up()
    assert server.tasks.following == 0
    assert not stream.heard.ended


async def test_a_stream_has_ids_and_goes_on_behind_the_last_one_without_gap_or_duplicate():
    server = Server()
    stream = server.rpc("SendStreamingMessage", {"message": said("m")})
    await stream.until(lambda heard: heard.events)
    for text in ("1", "2", "3"):
        await server.tasks.say("t0", TaskState.WORKING, text)
    await server.tasks.say("t0", DONE)
    whole = (await stream.end()).events
    assert [event["id"] for _, event in whole] == ["a"] * 5
    ids = [number for number, _ in whole]
    assert ids == ["0", "2", "3", "4", "5"]
    for seen in range(4):
        for method, params in (
            ("SubscribeToTask", {"id": "t0"}),
            ("SendStreamingMessage", {"message": said("m")}),
        ):
            resumed = await server.rpc(method, params, Last_Event_ID=ids[seen]).end()
            assert resumed.events == whole[seen + 1 :]
    for last in ("5", "not-ours"):
        assert await server.error("SubscribeToTask", {"id": "t0"}, Last_Event_ID=last) == -32004


async def test_a_silent_stream_is_kept_alive_by_comments():
    server = Server(beat=0.01)
    stream = server.rpc("SendStreamingMessage", {"message": said("m")})
    heard = await stream.until(lambda heard: heard.body.count(b": quiet\n\n") == 2)
    assert heard.headers["content-type"] == "text/event-stream"
    await server.tasks.say("t0", DONE)
    assert [set(event["result"]) for _, event in (await stream.end()).events] == [
        {"task"},
        {"statusUpdate"},
    ]


async def test_open_streams_are_counted_and_one_too_many_is_refused():
    open_streams = 0

    @contextmanager
    def streaming(_exchange: Exchange, _caller: str) -> Generator[None]:
        nonlocal open_streams
        if open_streams:
            raise Refused("too many")
        open_streams += 1
        try:
            yield
        finally:
            open_streams -= 1

    server = Server(streaming=streaming)
    first = server.rpc("SendStreamingMessage", {"message": said("m")})
    await server.tasks.followed(1)
    second = await server.rpc("SendStreamingMessage", {"message": said("m")}).end()
    assert (second.status, second.json["error"]["code"]) == (429, -32050)
    third = await server.ask("POST", "/tasks/t0:subscribe")
    assert third.status == 429
    await first.hang_up()
    assert open_streams == 0


async def test_a_follow_up_needs_no_context_and_not_a_foreign_one():
    server = Server()
    await server.result("SendMessage", {"message": said("m"), "configuration": NOW})
    follow_up = said("n", taskId="t0")
    assert await server.error("SendMessage", {"message": follow_up}) == -32004
    await server.tasks.say("t0", TaskState.INPUT_REQUIRED, "which?")
    foreign = {"message": follow_up | {"contextId": "other"}}
    assert await server.error("SendMessage", foreign) == -32602
    now = {"message": follow_up, "configuration": NOW}
    assert (await server.result("SendMessage", now))["task"]["contextId"] == "c-t0"
    await server.tasks.say("t0", DONE)
    assert await server.error("SendMessage", {"message": follow_up}) == -32004
    assert await server.error("SendMessage", {"message": said("o", taskId="no")}) == -32001


# ── REST ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_rest_has_every_method_at_its_path():
    server = Server()
    heard = await server.ask("POST", "/message:send", {"message": said("m"), "configuration": NOW})
    assert (heard.status, heard.json["task"]["id"]) == (200, "t0")
    assert (await server.ask("GET", "/tasks/t0?historyLength=0")).json.get("history") is None
    assert len((await server.ask("GET", "/tasks/t0")).json["history"]) == 1
    page = await server.ask("GET", "/tasks?pageSize=5&includeArtifacts=false&status=working")
    assert page.json["totalSize"] == 1
    stream = server.call("POST", "/tasks/t0:subscribe")
    await stream.until(lambda heard: heard.events)
    await server.tasks.say("t0", TaskState.WORKING, "at it")
    await stream.until(lambda heard: len(heard.events) == 2)
    assert (await server.ask("POST", "/tasks/t0:cancel")).json["status"]["state"] == (
        "TASK_STATE_CANCELED"
    )
    events = (await stream.end()).events
    assert [number for number, _ in events] == ["1", "2", "3"]
    again = await server.ask("GET", "/tasks/t0:subscribe", Last_Event_ID="2")
    assert again.events == events[2:]
    assert {asked.door for asked in server.asked} == {"a2a+rest"}


@pytest.mark.parametrize(
    "verb, path, body, status, reason",
    [
        ("GET", "/tasks/no", None, 404, "TASK_NOT_FOUND"),
        ("POST", "/tasks/t0:cancel", None, 409, "TASK_NOT_CANCELABLE"),
        ("POST", "/tasks/t0:subscribe", None, 400, "UNSUPPORTED_OPERATION"),
        ("POST", "/tasks/t0/pushNotificationConfigs", {}, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (
            "GET",
            "/tasks/t0/pushNotificationConfigs/x",
            None,
            400,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            "DELETE",
            "/tasks/t0/pushNotificationConfigs/x",
            None,
            400,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        ("GET", "/extendedAgentCard", None, 400, "UNSUPPORTED_OPERATION"),
        ("POST", "/message:send", {}, 400, "INVALID_PARAMS"),
        ("POST", "/message:send", [], 400, "INVALID_PARAMS"),
        ("POST", "/message:send", b"{", 400, "PARSE_ERROR"),
        ("GET", "/tasks?pageSize=x", None, 400, "INVALID_PARAMS"),
        ("GET", "/tasks?pageSize=0", None, 400, "INVALID_PARAMS"),
        ("GET", "/tasks?includeArtifacts=1", None, 400, "INVALID_PARAMS"),
        ("GET", "/tasks?status=odd", None, 400, "INVALID_PARAMS"),
        ("GET", "/nothing", None, 404, "METHOD_NOT_FOUND"),
    ],
)
async def test_a_refusal_over_rest_is_a_status_with_its_reason(
    verb: str, path: str, body: Any, status: int, reason: str
):
    server = Server()
    await server.tasks.submit(said("m"), "", follow=False)
    await server.tasks.say("t0", DONE)
    heard = await server.ask(verb, path, body)
    error = heard.json["error"]
    assert (heard.status, error["code"], error["details"][0]["reason"]) == (status, status, reason)
    assert error["details"][0]["domain"] == "a2a-protocol.org"


async def test_rest_says_which_verbs_and_media_types_it_takes():
    server = Server()
    heard = await server.ask("DELETE", "/tasks/t0:subscribe")
    assert (heard.status, heard.headers["allow"]) == (405, "GET, POST")
    assert (await server.ask("GET", "/")).headers["allow"] == "POST"
    heard = await server.ask("POST", "/message:send", b"{}", Content_Type="text/plain")
    assert heard.status == 415
    for version, path in (("2.0", "/tasks"), ("", "/tasks"), ("", "/message:send")):
        heard = await server.ask("GET" if path == "/tasks" else "POST", path, A2A_Version=version)
        assert heard.json["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


# ── 0.3 ──────────────────────────────────────────────────────────────────────────────────────────────

LEGACY = {
    "kind": "message",
    "messageId": "m",
    "role": "user",
    "parts": [{"kind": "text", "text": "do"}],
}


async def test_a_client_of_0_3_sends_follows_and_cancels_over_json_rpc():
    server = Server()
    stream = server.rpc("message/stream", {"message": LEGACY}, A2A_Version="")
    await stream.until(lambda heard: heard.events)
    await server.tasks.say("t0", TaskState.WORKING, "at it")
    later = server.rpc("tasks/resubscribe", {"id": "t0"}, A2A_Version="0.3")
    await later.until(lambda heard: heard.events)
    done = await server.result("tasks/cancel", {"id": "t0"}, A2A_Version="")
    assert (done["kind"], done["status"]["state"]) == ("task", "canceled")
    first, working, canceled = [event["result"] for _, event in (await stream.end()).events]
    assert (first["kind"], first["history"]) == ("task", [LEGACY])
    assert (working["status"]["message"]["role"], working["final"]) == ("agent", False)
    assert (canceled["kind"], canceled["final"]) == ("status-update", True)
    assert next(number for number, _ in later.heard.events) == "2"
    now = {"message": LEGACY, "configuration": {"blocking": False}}
    assert (await server.result("message/send", now, A2A_Version=""))["id"] == "t0"
    assert (await server.result("tasks/get", {"id": "t0"}, A2A_Version=""))["kind"] == "task"


async def test_an_error_of_0_3_has_no_details_and_a_method_of_1_0_is_none_of_0_3():
    server = Server()
    heard = await server.rpc("tasks/get", {"id": "no"}, A2A_Version="0.3").end()
    assert heard.json["error"] == {"code": -32001, "message": "there is no such task"}
    odd = {"message": {**LEGACY, "role": "odd"}}
    assert await server.error("message/send", odd, A2A_Version="") == -32602
    assert await server.error("message/send", {"message": 3}, A2A_Version="") == -32602
    assert await server.error("tasks/list", {}, A2A_Version="") == -32601


@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_a_client_of_0_3_sends_follows_and_cancels_over_rest(prefix: str):
    server = Server()
    content = [{"text": "do"}, {"file": {"fileWithUri": "https://a.test/b", "name": "b"}}]
    file = {"file_with_uri": "https://a.test/b", "name": "b"}  # the proto's own names mean the same
    message = {"message_id": "m", "role": "ROLE_USER", "content": [content[0], {"file": file}]}
    version = "" if prefix else "0.3"
    heard = await server.ask(
        "POST", f"{prefix}/message:send", {"message": message}, A2A_Version=version
    )
    task = heard.json["task"]
    assert task["history"][0]["content"] == content
    assert server.tasks.tasks["t0"]["history"][0]["parts"][1] == {
        "url": "https://a.test/b",
        "filename": "b",
    }
    stream = server.call("GET", f"{prefix}/tasks/t0:subscribe", A2A_Version=version)
    await stream.until(lambda heard: heard.events)
    canceled = await server.ask("POST", f"{prefix}/tasks/t0:cancel", {}, A2A_Version=version)
    assert canceled.json["status"]["state"] == "TASK_STATE_CANCELLED"
    assert (await stream.end()).events[-1][1]["statusUpdate"]["final"] is True


# ── the card ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
async def test_a_card_is_served_with_what_caches_need(path: str):
    server = Server()
    heard = await server.ask("GET", path)
    assert heard.json == CARD
    assert heard.headers["cache-control"] == "private, max-age=60"
    tag, at = heard.headers["etag"], heard.headers["last-modified"]
    head = await server.ask("HEAD", path)
    assert (head.headers["content-length"], head.body) == (str(len(heard.body)), b"")
    for known in (f'W/"x", {tag}', "*", f"W/{tag}"):
        again = await server.ask("GET", path, If_None_Match=known)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert (await server.ask("GET", path, If_None_Match='"x"', If_Modified_Since=at)).status == 200
    assert (await server.ask("GET", path, If_Modified_Since=at)).status == 304
    assert (await server.ask("GET", path, If_Modified_Since="yesterday")).status == 200


async def test_a_body_in_pieces_is_one_body_and_half_of_one_is_no_request():
    server = Server()
    record = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}).encode()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(*pieces: dict[str, Any]) -> None:
        left = list(pieces)

        async def receive() -> dict[str, Any]:
            return left.pop(0) if left else await asyncio.Event().wait()  # ty: ignore[invalid-explicit-return]

        headers = [(b"content-type", b"application/json"), (b"a2a-version", b"1.0")]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        await server.app(scope, receive, send)

    whole = [{"type": "http.request", "body": record[:9], "more_body": True}]
    await app(*whole, {"type": "http.request", "body": record[9:]})
    assert json.loads(sent[1]["body"])["result"]["tasks"] == []
    sent.clear()
    await app(*whole, {"type": "http.disconnect"})
    assert sent == []


async def hanging_up() -> dict[str, Any]:
    return {"type": "http.disconnect"}


async def staying() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


def exchange_with(receive: Any) -> Exchange:
    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    return Exchange(scope, receive, receive)


async def test_work_for_a_client_that_goes_is_cancelled():
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ClientGone):
        async with asyncio.timeout(DEADLINE):
            await exchange_with(hanging_up).while_there(work())
    assert cancelled.is_set()


async def test_work_that_takes_too_long_is_not_taken_for_a_client_that_goes():
    async def work() -> None:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        await exchange_with(staying).while_there(work())


async def test_a_wait_that_is_cancelled_from_outside_is_cancelled():
    waiting = asyncio.create_task(exchange_with(staying).while_there(asyncio.Event().wait()))
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(DEADLINE):
            await waiting
