"""The WebSocket of a worker's events: replay, then live, without a gap and without a duplicate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from postroom.client.http import Client
from postroom.client.locate import ServerAddress
from postroom.client.websocket import SocketEnded, WebSocket
from postroom.control import websockets
from postroom.control.websockets import BoundedWebSocket
from postroom.errors import Forbidden, NotFound, PostroomError, Unauthorized
from postroom.projection.changes import LISTENER_LIMIT
from postroom.protocol.principal import Scope
from postroom.protocol.sockets import BEARER, SUBPROTOCOL, Code
from tests.control.taskroom import KEY, SECONDS, Hand, TaskRoom, emptied, task_room
from tests.control.test_keys import person

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("client-stream-resumes")]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


class Sidecar:
    """Reports numbered texts of one run, as a worker's sidecar does."""

    def __init__(self, room: TaskRoom, worker: Hand, run: str = "run") -> None:
        self._room = room
        self._worker = worker
        self._run = run
        self.next = 1

    async def report(self, count: int) -> None:
        events = [{"type": "text", "text": str(self.next + at)} for at in range(count)]
        log = self._room.parts.events
        self.next = (await log.append(self._worker.uid, events, self._run, self.next)).next


def client_of(room: TaskRoom, key: str = KEY) -> Client:
    return Client.on(lambda: ServerAddress(f"http://{room.site.host}", 0, key))


class Follower:
    """A client in a thread of its own, as the CLI has it."""

    def __init__(self, room: TaskRoom, worker: Hand, after: int = 0, pause: float = 0.0) -> None:
        self.came: list[dict[str, Any]] = []
        self.error: PostroomError | None = None
        self.away: list[bool] = []
        self._client = client_of(room)
        self._events = self._client.events(worker.agent.nick, after_id=after, away=self.away.append)
        self.connected = self._events.connected
        self._changed = threading.Condition()
        self._pause = threading.Event()
        self._seconds = pause
        self._thread = threading.Thread(target=self._run)

    @property
    def texts(self) -> list[str]:
        return [event["text"] for event in self.came]

    def _run(self) -> None:
        try:
            for event in self._events:
                with self._changed:
                    self.came.append(event)
                    self._changed.notify_all()
                if self._seconds:
                    self._pause.wait(self._seconds)
        except PostroomError as error:
            self.error = error

    async def until(self, done: Callable[[list[str]], bool]) -> list[str]:
        def wait() -> list[str]:
            with self._changed:
                assert self._changed.wait_for(lambda: done(self.texts), SECONDS), self.texts[-3:]
                return self.texts

        return await asyncio.to_thread(wait)

    async def start(self) -> None:
        self._thread.start()
        assert await asyncio.to_thread(self.connected.wait, SECONDS)

    async def stop(self) -> None:
        self._events.close()
        await asyncio.to_thread(self._thread.join, SECONDS)
        assert not self._thread.is_alive()
        self._client.close()


@asynccontextmanager
async def following(
    room: TaskRoom, worker: Hand, after: int = 0, pause: float = 0.0
) -> AsyncGenerator[Follower]:
    follower = Follower(room, worker, after, pause)
    await follower.start()
    try:
        yield follower
    finally:
        await follower.stop()


def numbers(last: int, first: int = 1) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_a_follower_that_comes_while_a_writer_writes_at_full_speed_gets_each_event_once(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        sidecar = Sidecar(room, alice)
        writing = asyncio.Event()

        async def write() -> None:
            for count in (1, 7, 30) * 40:
                await sidecar.report(count)
                if sidecar.next > 300:
                    writing.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            await writing.wait()
            async with (
                following(room, alice) as one,
                following(room, alice) as other,
            ):
                last = str(38 * 40)
                for follower in (one, other):
                    texts = await follower.until(lambda texts: texts[-1:] == [last])
                    assert texts == numbers(int(last))
        ids = [event["id"] for event in one.came]
        assert ids == sorted(set(ids))
        assert {event["worker"] for event in one.came} == {alice.uid}


async def test_a_follower_goes_on_from_any_id_and_from_now_on(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        sidecar = Sidecar(room, alice)
        await sidecar.report(5)
        async with following(room, alice) as whole:
            await whole.until(lambda texts: len(texts) == 5)
        async with (
            following(room, alice, whole.came[2]["id"]) as rest,
            following(room, alice, -1) as live,
        ):
            assert await rest.until(lambda texts: len(texts) == 2) == ["4", "5"]
            last = await room.rig.admin.last_sequence("EVENTS")
            await room.parts.fold.reached("EVENTS", last, SECONDS)
            await sidecar.report(2)
            assert await live.until(lambda texts: len(texts) == 2) == ["6", "7"]
            assert await rest.until(lambda texts: len(texts) == 4) == ["4", "5", "6", "7"]


async def test_a_follower_slower_than_the_changes_that_are_kept_for_it_misses_nothing(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        sidecar = Sidecar(room, alice)
        async with following(room, alice) as follower:
            held = room.parts.events.past
            gate = asyncio.Event()

            async def slow(*args: Any) -> Any:
                await gate.wait()
                return await held(*args)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(room.parts.events), "past", lambda _, *args: slow(*args))
                async with following(room, alice) as late:
                    for _ in range(LISTENER_LIMIT + 10):
                        await sidecar.report(1)
                    gate.set()
                    last = LISTENER_LIMIT + 10
                    assert await late.until(lambda texts: len(texts) >= last) == numbers(last)
            assert await follower.until(lambda texts: len(texts) >= last) == numbers(last)


async def test_a_client_that_was_cut_comes_back_with_its_id_and_goes_on(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        sidecar = Sidecar(room, alice)
        await sidecar.report(3)
        async with following(room, alice) as follower:
            await follower.until(lambda texts: len(texts) == 3)
            for connection in list(room.site.listener._server.server_state.connections):
                if isinstance(connection, BoundedWebSocket):
                    connection.cut(Code.TRY_AGAIN, websockets.TOO_SLOW)
            await sidecar.report(3)
            assert await follower.until(lambda texts: len(texts) == 6) == numbers(6)
            assert follower.away == [True, False]


def opened(room: TaskRoom, key: str, ref: str) -> WebSocket:
    with closing(client_of(room, key)) as client:
        return client.transport.websocket(f"/v1/workers/{ref}/sdk-events/stream", {})


async def test_who_may_not_operate_gets_no_events(shared: TaskRoom):
    async with emptied(shared) as room, person(room, "weak", Scope.READ, Scope.SEND) as weak:
        alice = await room.worker("alice")
        for key, ref, kind in (
            (weak.secret, alice.uid, Forbidden),
            ("wrong", alice.uid, Unauthorized),
            (KEY, "nobody", NotFound),
        ):
            with pytest.raises(kind):
                await asyncio.to_thread(opened, room, key, ref)


async def test_a_connection_ends_with_the_key_that_opened_it(shared: TaskRoom):
    async with emptied(shared) as room, person(room, "anna", Scope.READ, Scope.OPERATE) as anna:
        alice = await room.worker("alice")
        socket = await asyncio.to_thread(opened, room, anna.secret, alice.uid)
        revoked = await room.api.delete(f"/v1/keys/{anna.key_id}")
        assert revoked.status_code == 200
        with pytest.raises(SocketEnded) as end:
            await asyncio.to_thread(socket.receive, SECONDS)
        assert end.value.close_code == Code.REFUSED
        with pytest.raises(Unauthorized):
            await asyncio.to_thread(opened, room, anna.secret, alice.uid)


async def test_a_browser_brings_its_key_as_a_subprotocol(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")

        async def status(key: str, origin: str = f"http://{room.site.host}") -> tuple[str, str]:
            reader, writer = await asyncio.open_connection("127.0.0.1", room.site.port)
            lines = [
                f"GET /v1/workers/{alice.uid}/sdk-events/stream HTTP/1.1",
                f"Host: {room.site.host}",
                f"Origin: {origin}",
                "Upgrade: websocket",
                "Connection: Upgrade",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                f"Sec-WebSocket-Protocol: {SUBPROTOCOL}, {BEARER}{key}",
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            async with asyncio.timeout(SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            writer.close()
            taken = [line for line in head.splitlines() if "sec-websocket-protocol" in line]
            return head.split(" ")[1], "".join(taken)

        assert await status(KEY) == ("101", f"sec-websocket-protocol: {SUBPROTOCOL}")
        assert await status("wrong") == ("401", "")
        assert await status(KEY, "http://evil.example") == ("403", "")


async def test_at_the_end_of_the_post_room_a_follower_is_told_so(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        socket = await asyncio.to_thread(opened, room, KEY, alice.uid)
        room.parts.changes.close()
        with pytest.raises(SocketEnded) as end:
            await asyncio.to_thread(socket.receive, SECONDS)
        assert end.value.close_code == Code.GOING_AWAY
