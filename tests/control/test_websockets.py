"""WebSockets below the API: refused like every request, bounded, cut, and closed with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any
from unittest.mock import MagicMock

import pytest
from pydantic import Field
from wsproto import events

from postroom.client.locate import ServerAddress
from postroom.client.websocket import SocketEnded, WebSocket
from postroom.control import websockets
from postroom.control.ops.table import ANYONE, Operations
from postroom.control.principals import Gate
from postroom.control.router import Router
from postroom.control.websockets import CUT, BoundedWebSocket, Socket
from postroom.errors import Conflict, InvalidInput, NotFound, PeerError
from postroom.protocol.limits import MAX_SOCKET_MESSAGE
from postroom.protocol.sockets import Code
from tests.control.serving import DEADLINE, Echo, Site, serving

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("caller-limits")]


class Routes:
    """Routes of a test, and what happened in them."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.at = asyncio.Event()
        self.scopes: list[Any] = []
        self.sockets = Operations()
        self.sockets.socket("/v1/echo/{name}", ANYONE)(self.echo)
        self.sockets.socket("/flood", ANYONE)(self.flood)
        self.sockets.socket("/refuse", ANYONE)(self.refuse)
        self.sockets.socket("/break", ANYONE)(self.break_off)
        self.sockets.socket("/idle", ANYONE)(self.idle)
        self.sockets.socket("/never", ANYONE)(self.never)

    async def echo(
        self, socket: Socket, name: str, number: Annotated[int, Field(ge=0)] = 0
    ) -> None:
        await socket.accept()
        await socket.send_text(f"{name} {number}")
        while True:
            message = await socket.receive()
            if message == "end":
                return
            if isinstance(message, str):
                await socket.send_text(message)
            else:
                await socket.send_bytes(message)

    async def flood(self, socket: Socket) -> None:
        self.scopes.append(socket.scope)
        await socket.accept()
        try:
            while True:
                await socket.send_text("x" * 10_000)
        finally:
            self.gone.set()

    async def refuse(self, socket: Socket) -> None:
        raise Conflict("not now", remedy="later")

    async def break_off(self, socket: Socket) -> None:
        await socket.accept()
        raise Conflict("no more")

    async def idle(self, socket: Socket) -> None:
        await socket.accept()
        self.scopes.append(socket.scope)
        self.at.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.gone.set()

    async def never(self, socket: Socket) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def site_with(routes: Routes) -> AsyncGenerator[Site]:
    async with serving(Echo()) as site:
        site.router.open(Router(Gate(MagicMock(), MagicMock()), {}, routes.sockets))
        yield site


def address(site: Site) -> ServerAddress:
    return ServerAddress(f"http://{site.host}", 0, "key")


async def connected(site: Site, path: str, **query: str) -> WebSocket:
    server = address(site)
    return await asyncio.to_thread(WebSocket.connect, server, f"{server.url}{path}", query, {})


async def received(socket: WebSocket) -> str | bytes | None:
    return await asyncio.to_thread(socket.receive, DEADLINE)


async def ended(socket: WebSocket) -> SocketEnded:
    """How it ends; what still comes is passed over."""

    def drain() -> SocketEnded:
        while True:
            try:
                assert socket.receive(DEADLINE) is not None, "it did not end in time"
            except SocketEnded as error:
                return error

    return await asyncio.to_thread(drain)


async def test_texts_and_bytes_of_every_length_go_both_ways():
    routes = Routes()
    async with site_with(routes) as site:
        socket = await connected(site, "/v1/echo/anna")
        assert await received(socket) == "anna 0"
        for message in ("", "grüße", b"", b"\0\xff", "x" * 126, b"y" * 70_000, "z" * 100_000):
            if isinstance(message, str):
                socket.send_text(message)
            else:
                socket.send_bytes(message)
            assert await received(socket) == message
        socket.send_text("end")
        assert (await ended(socket)).close_code == Code.DONE


async def test_what_is_wrong_before_the_beginning_is_an_answer_with_its_problem():
    async with site_with(Routes()) as site:
        for path, kind, query in (
            ("/refuse", Conflict, {}),
            ("/nothing", NotFound, {}),
            ("/v1/echo/", NotFound, {}),
            ("/v1/echo/a/b", NotFound, {}),
            ("/v1/echo/a", InvalidInput, {"number": "-1"}),
            ("/v1/echo/a", InvalidInput, {"number": "b"}),
        ):
            with pytest.raises(kind) as refused:
                await connected(site, path, **query)
            assert refused.value.message
        socket = await connected(site, "/v1/echo/a", number="7", unknown="1")
        assert await received(socket) == "a 7"
        socket.close()


async def test_what_goes_wrong_later_is_the_reason_of_the_end():
    async with site_with(Routes()) as site:
        end = await ended(await connected(site, "/break"))
        assert (end.close_code, end.reason) == (Code.REFUSED, "conflict: no more")


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example:80"}]
)
async def test_a_strange_host_or_origin_is_refused(headers: dict[str, str]):
    async with site_with(Routes()) as site:
        lines = {
            "Host": site.host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        } | headers
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        said = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"GET /v1/echo/a HTTP/1.1\r\n{said}\r\n".encode())
        async with asyncio.timeout(DEADLINE):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"application/problem+json" in answer
        writer.close()


async def test_work_for_a_client_that_has_gone_is_cancelled():
    routes = Routes()
    async with site_with(routes) as site, asyncio.timeout(DEADLINE):
        socket = await connected(site, "/idle")
        socket.abort()
        await routes.gone.wait()


async def test_a_client_that_does_not_read_is_closed_and_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(websockets, "SLOW", 0.2)
    routes = Routes()
    async with site_with(routes) as site, asyncio.timeout(DEADLINE):
        socket = await connected(site, "/flood")
        await routes.gone.wait()
        end = await ended(socket)
        assert (end.close_code, end.reason) == (Code.TRY_AGAIN, websockets.TOO_SLOW)


async def test_a_client_that_never_reads_again_is_cut_and_holds_no_memory(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(websockets, "SLOW", 0.1)
    monkeypatch.setattr(BoundedWebSocket, "grace", 0.1)
    routes = Routes()
    async with site_with(routes) as site, asyncio.timeout(DEADLINE):
        socket = await connected(site, "/flood")
        await routes.gone.wait()
        state = site.listener._server.server_state
        while state.connections:  # noqa: ASYNC110 (uvicorn tells nobody)
            await asyncio.sleep(0.01)
        socket.abort()


async def test_who_sends_more_than_a_message_may_have_is_closed():
    async with site_with(Routes()) as site:
        socket = await connected(site, "/v1/echo/a")
        await received(socket)

        def send() -> None:
            with suppress(PeerError):
                socket.send_bytes(b"x" * (MAX_SOCKET_MESSAGE + 1))

        await asyncio.to_thread(send)
        assert (await ended(socket)).close_code in {Code.TOO_LARGE, 1006}


async def test_what_is_no_websocket_and_what_is_not_accepted_is_cut(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(BoundedWebSocket, "accept_timeout", 0.1)
    async with site_with(Routes()) as site:
        with pytest.raises(PeerError):
            await connected(site, "/never")
        socket = await connected(site, "/idle")
        socket._link.sendall(b"\xff\xff\xff\xff\xff\xff")
        assert (await ended(socket)).close_code in {1002, 1006}


async def test_an_idle_client_is_pinged_and_one_that_does_not_answer_is_closed():
    routes = Routes()
    async with site_with(routes) as site:
        config = site.listener._server.config
        config.ws_ping_interval, config.ws_ping_timeout = 0.1, 0.3
        quiet = await connected(site, "/idle")
        assert await asyncio.to_thread(quiet.receive, 1.0) is None  # it answers while it waits
        quiet.close()
        dead = await connected(site, "/idle")
        await asyncio.wait_for(routes.gone.wait(), DEADLINE)
        routes.gone.clear()
        await asyncio.wait_for(routes.gone.wait(), DEADLINE)
        assert (await ended(dead)).close_code == Code.FAILED


async def test_at_the_end_of_the_listener_clients_are_told_that_it_restarts():
    routes = Routes()
    async with site_with(routes) as site:
        socket = await connected(site, "/idle")
        await asyncio.wait_for(routes.at.wait(), DEADLINE)
        site.listener.stop()
        assert (await ended(socket)).close_code == Code.RESTARTING


async def test_a_cut_closes_at_once_with_its_reason():
    routes = Routes()
    async with site_with(routes) as site:
        socket = await connected(site, "/idle")
        await asyncio.wait_for(routes.at.wait(), DEADLINE)
        routes.scopes[0][CUT](Code.REFUSED, "enough" + "é" * 200)
        end = await ended(socket)
        assert (end.close_code, end.reason[:6]) == (Code.REFUSED, "enough")
        await asyncio.wait_for(routes.gone.wait(), DEADLINE)


async def test_pings_of_a_client_that_does_not_read_do_not_pile_up():
    routes = Routes()
    async with site_with(routes) as site, asyncio.timeout(DEADLINE):
        socket = await connected(site, "/flood")
        (connection,) = site.listener._server.server_state.connections
        assert isinstance(connection, BoundedWebSocket)
        while connection.writable.is_set():  # noqa: ASYNC110 (uvicorn tells nobody)
            await asyncio.sleep(0.01)
        before = connection.transport.get_write_buffer_size()
        for _ in range(200):
            connection.handle_ping(events.Ping(payload=b"x" * 125))
        assert connection.transport.get_write_buffer_size() == before
        socket.abort()
        await routes.gone.wait()
