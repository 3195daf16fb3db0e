"""Where the HTTP API listens, and how a worker's connection reaches it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from postroom.control import http_protocol
from postroom.control.http_listener import WorkerDialer, bind
from postroom.control.http_protocol import ABANDONED, PRINCIPAL, Connections, DeadlineProtocol
from postroom.control.org_router import WORKER, OrgRouter, Receive, Scope, Send
from postroom.errors import InvalidInput, PortTaken
from postroom.protocol.limits import MAX_HEAD, MAX_HEADERS
from tests.control.serving import DEADLINE, Echo, Site, exchange, serving
from tests.control.taskroom import task_room

pytestmark = pytest.mark.anyio
UID, OTHER = "a" * 32, "b" * 32
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.mark.requirement("tls-beyond-loopback")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "10.0.0.1", "2001:db8::1"])
async def test_an_address_that_others_can_reach_is_refused(host: str):
    with pytest.raises(InvalidInput, match="TLS"):
        bind(host, 0, usual=0)


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_host_that_is_no_address_is_refused():
    with pytest.raises(InvalidInput):
        bind("example.org", 0, usual=0)


async def test_a_port_that_is_free_is_the_one_that_was_asked_for():
    with bind("127.0.0.1", 0, usual=0) as first:
        port = first.getsockname()[1]
    with bind("127.0.0.1", port, usual=0) as again:
        assert again.getsockname() == ("127.0.0.1", port)


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("off", [0, 1])
async def test_a_chosen_port_that_is_taken_is_an_error_be_it_the_usual_one_or_not(
    taken: int, off: int
):
    with pytest.raises(PortTaken, match=str(taken)):
        bind("127.0.0.1", taken, usual=taken + off)


async def test_where_none_is_chosen_a_usual_port_that_is_taken_means_any_free_one(taken: int):
    with bind("127.0.0.1", None, usual=taken) as listener:
        assert listener.getsockname()[1] not in (0, taken)


async def test_a_port_belongs_to_one_post_room_from_the_moment_it_is_bound():
    with bind("127.0.0.1", 0, usual=0) as first, pytest.raises(PortTaken):
        bind("127.0.0.1", first.getsockname()[1], usual=1).close()


async def test_a_listener_that_is_stopped_ends_and_frees_its_port():
    async with asyncio.timeout(20):
        async with serving(Echo()) as site:
            await site.get("/v1/status")

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", site.port)


@pytest.mark.requirement("api-key-required")
async def test_a_dialled_connection_is_served_as_the_worker_of_the_door():
    api = Echo()
    dialer = WorkerDialer(api)

    for uid in (UID, OTHER):
        answer = await exchange(*await dialer.dial(uid), "/v1/status", "Host: postroom")
        assert answer.status == 200

    assert [scope[WORKER] for scope in api.scopes] == [UID, OTHER]


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize("name", [WORKER, "X-Postroom-Worker", "Postroom-Worker"])
async def test_a_header_does_not_make_a_worker_another_one(name: str):
    api = Echo()

    await exchange(*await WorkerDialer(api).dial(UID), "/v1", "Host: postroom", f"{name}: {OTHER}")

    assert api.scopes[0][WORKER] == UID


@pytest.mark.requirement("api-key-required")
async def test_a_worker_passes_the_front_with_the_host_name_of_its_door():
    front, api = OrgRouter(frozenset({"127.0.0.1:4280"})), Echo()
    front.open(api)
    front.admit(UID, "default")

    answer = await exchange(*await WorkerDialer(front).dial(UID), "/v1", "Host: postroom")

    assert answer.status == 200
    assert api.scopes[0][WORKER] == UID


async def test_several_requests_pass_on_one_dialled_connection():
    api = Echo()
    reader, writer = await WorkerDialer(api).dial(UID)

    writer.write(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        await reader.readuntil(b"\r\n\r\napi")
    await exchange(reader, writer, "/2", "Host: x")

    assert [scope["path"] for scope in api.scopes] == ["/1", "/2"]


class Counted:
    """A transport that keeps what is written."""

    def __init__(self, transport: asyncio.Transport, written: list[bytes]) -> None:
        self._transport = transport
        self._written = written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._transport.write(data)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What connections write, a piece for each write."""
    made, pieces = DeadlineProtocol.connection_made, []

    def connection_made(self: DeadlineProtocol, transport: asyncio.Transport) -> None:
        made(self, cast("asyncio.Transport", Counted(transport, pieces)))

    monkeypatch.setattr(DeadlineProtocol, "connection_made", connection_made)
    return pieces


async def test_an_answer_is_one_write(written: list[bytes]):
    answer = await exchange(*await WorkerDialer(Echo()).dial(UID), "/v1", "Host: postroom")

    assert answer.body == b"api"
    assert len(written) == 1


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
async def test_a_head_goes_out_without_a_body(verb: str):
    ended = asyncio.Event()

    async def api(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"x-a", b"b")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await ended.wait()
        await send({"type": "http.response.body", "body": b""})

    reader, writer = await WorkerDialer(api).dial(UID)
    writer.write(f"{verb} /v1 HTTP/1.1\r\nHost: postroom\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE):
        head = await reader.readuntil(b"\r\n\r\n")
    ended.set()
    writer.close()

    assert b"x-a: b" in head


async def test_the_head_of_an_answer_that_fails_goes_out_before_its_connection_closes():
    async def api(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        raise ValueError("half an answer")

    reader, writer = await WorkerDialer(api).dial(UID)
    writer.write(b"GET /v1 HTTP/1.1\r\nHost: postroom\r\n\r\n")
    async with asyncio.timeout(DEADLINE):
        answer = await reader.read()
    writer.close()

    assert answer.startswith(b"HTTP/1.1 418 ")


@pytest.mark.requirement("attack-flood-slowed")
@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /livez HTTP/1.1\r\nHost: ",
        b"GET /livez HTTP/1.1\r\nHost: HOST\r\n\r\nGET /livez HTTP/1.1\r\n",
        b"POST /v1/x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 9\r\n\r\nhalf",
    ],
)
async def test_a_connection_whose_request_does_not_end_is_cut(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Connections, "deadline", 0.05)

    async def read_it_all(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive()).get("more_body"):
            pass

    async with serving(read_it_all) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(begun.replace(b"HOST", site.host.encode()))
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        writer.close()


@pytest.mark.requirement("attack-flood-slowed")
async def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Connections, "deadline", 0.01)
    looks = asyncio.Semaphore(0)
    look = DeadlineProtocol.look

    def counted(protocol: DeadlineProtocol) -> None:
        look(protocol)
        looks.release()

    monkeypatch.setattr(DeadlineProtocol, "look", counted)

    async def slow(_scope: Scope, _receive: Receive, send: Send) -> None:
        for _ in range(5):
            await looks.acquire()
        await Echo()(_scope, _receive, send)

    async with serving(slow) as site:
        assert (await site.get("/v1/slow")).body == b"api"


@pytest.mark.requirement("owner-way-in")
async def test_a_connection_too_many_is_told_to_come_again_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(http_protocol, "most_connections", lambda: 2)
    async with serving(Echo()) as site:
        held = await _begun(site, 2)

        answer = await site.get("/livez")

        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert json.loads(answer.body)["detail"] == "too many are connected"
        await _ended(site, held)
        for _, each in held:
            each.close()


@pytest.mark.requirement("owner-way-in")
async def test_a_connection_far_too_many_is_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_protocol, "most_connections", lambda: 2)
    monkeypatch.setattr(http_protocol, "TURNED_AWAY", 1)
    async with serving(Echo()) as site:
        held = await _begun(site, 2)
        held.append(await asyncio.open_connection("127.0.0.1", site.port))
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        await _ended(site, held[:2])
        for _, each in held:
            each.close()


async def _begun(site: Site, count: int) -> list[Pair]:
    """Connections that have begun their next request."""
    pairs = await _held(site, count)
    for _, writer in pairs:
        writer.write(b"GET /livez HTTP/1.1\r\n")
    return pairs


async def _ended(site: Site, pairs: list[Pair]) -> None:
    for reader, writer in pairs:
        writer.write(f"Host: {site.host}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")


async def _held(site: Site, count: int) -> list[Pair]:
    """Connections that the listener knows: each was answered."""
    pairs = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(count)]
    await _served(site, pairs)
    return pairs


async def _served(site: Site, pairs: list[Pair]) -> None:
    for reader, writer in pairs:
        writer.write(f"GET /livez HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.requirement("attack-flood-slowed")
@pytest.mark.parametrize(
    "head",
    [
        "GET /livez HTTP/1.1\r\nX: ",
        "GET /",
        "GET / HTTP/1.1\r\n" + "a: b\r\n" * (MAX_HEADERS + 1) + "\r\n",
    ],
)
async def test_a_head_that_is_too_large_is_refused(head: str):
    async with serving(Echo()) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(head.encode())
        for _ in range(0 if head.endswith("\r\n") else 2 * MAX_HEAD // 1024):
            writer.write(b"x" * 1024)
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionResetError):
                assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
        writer.close()
        assert site.api.scopes == []


@pytest.mark.requirement("task-waiters-end")
async def test_a_request_that_only_waits_ends_when_its_caller_goes():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(scope: Scope, _receive: Receive, _send: Send) -> None:
        scope[ABANDONED] = False
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not scope[ABANDONED]:
                raise
            ended.set()

    async with serving(wait) as site:
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(f"GET /v1/x HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE):
            await begun.wait()
        writer.close()
        async with asyncio.timeout(DEADLINE):
            await ended.wait()


def test_the_limit_of_descriptors_is_raised_and_never_lowered():
    code = (
        "import resource as r; from postroom.control.http_protocol import raise_descriptors as go\n"
        "hard = r.getrlimit(r.RLIMIT_NOFILE)[1]\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, min(1024, hard))); go(); print(r.getrlimit(r.RLIMIT_NOFILE)[0])\n"
        "go(); print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=True)

    assert done.stdout.split() == ["1024", "1024"]


async def _keyed(scope: Scope, receive: Receive, send: Send) -> None:
    """An API that knows the key of everybody who has one."""
    if any(name == b"authorization" for name, _ in scope["headers"]):
        scope[PRINCIPAL] = "somebody"
    await Echo()(scope, receive, send)


async def _asked(site: Site, pair: Pair, *headers: str) -> None:
    reader, writer = pair
    head = ["GET /v1/x HTTP/1.1", f"Host: {site.host}", *headers, "", ""]
    writer.write("\r\n".join(head).encode())
    async with asyncio.timeout(DEADLINE):
        assert (await reader.readuntil(b"\r\n\r\napi")).startswith(b"HTTP/1.1 200 ")


async def _cut(pair: Pair) -> None:
    async with asyncio.timeout(DEADLINE):
        with contextlib.suppress(ConnectionResetError):
            assert await pair[0].read() == b""


@pytest.mark.requirement("owner-way-in")
async def test_an_idle_connection_that_has_shown_a_key_is_kept_longer_than_others(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(Connections, "deadline", 0.01)
    assert DeadlineProtocol.keyed_idle == 75
    async with serving(_keyed) as site:
        keyed, other = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(2)]
        await _asked(site, keyed, "Authorization: Bearer x")
        await _asked(site, other)
        await _cut(other)  # uvicorn's time, and some hundred looks
        await _asked(site, keyed)
        monkeypatch.setattr(DeadlineProtocol, "keyed_idle", 0.1)
        await _asked(site, keyed, "Authorization: Bearer x")
        await _cut(keyed)
        for _, writer in (keyed, other):
            writer.close()


@pytest.mark.requirement("owner-way-in")
async def test_a_connection_that_has_shown_a_key_and_begins_a_request_ends_it_in_time(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(Connections, "deadline", 0.05)
    async with serving(_keyed) as site:
        pair = await asyncio.open_connection("127.0.0.1", site.port)
        await _asked(site, pair, "Authorization: Bearer x")
        pair[1].write(b"GET /v1/x HTTP/1.1\r\n")
        await _cut(pair)
        pair[1].close()


@pytest.mark.requirement("owner-way-in")
async def test_where_places_are_short_idle_connections_go_those_without_a_key_first(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(http_protocol, "most_connections", lambda: 2)
    async with serving(_keyed) as site:
        pairs = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(2)]
        await _asked(site, pairs[0], "Authorization: Bearer x")
        await _asked(site, pairs[1])
        pairs.append(await asyncio.open_connection("127.0.0.1", site.port))
        await _asked(site, pairs[2])
        await _cut(pairs[1])
        await _asked(site, pairs[0])
        pairs[2][1].write(b"GET /v1/x HTTP/1.1\r\n")
        pairs.append(await asyncio.open_connection("127.0.0.1", site.port))
        await _asked(site, pairs[3])
        await _cut(pairs[0])
        for _, writer in pairs:
            writer.close()


@pytest.mark.requirement("owner-way-in")
@pytest.mark.parametrize("path", ["/v1/status", "/v1/tasks", "/v1/inbox"])
async def test_the_api_tells_its_connection_of_a_valid_key(tmp_path: Path, path: str):
    async with task_room(tmp_path) as room:
        open_ones = room.site.listener._server.server_state.connections
        await room.api.get(path, headers={"Authorization": "Bearer wrong"})
        (one,) = open_ones
        assert cast("DeadlineProtocol", one).timeout_keep_alive == 5
        await room.api.get(path)
        (one,) = open_ones
        assert cast("DeadlineProtocol", one).timeout_keep_alive == DeadlineProtocol.keyed_idle
