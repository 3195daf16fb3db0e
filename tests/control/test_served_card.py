"""How the control plane reaches into a folder that a worker owns: no link is followed, no answer is believed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from postroom.directory.cards import MAX_CARD_BYTES, SERVER_SOCKET
from postroom.errors import Conflict, PostroomError, ProtocolViolation, RequestTimeout
from postroom.workers.served_card import fetch_card

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("inward-socket-itself")]

CARD = {"name": "alice"}

Answerer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def whole(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def listening(folder: Path, answer: bytes | Answerer) -> AsyncGenerator[list[bytes]]:
    """A worker's server on the socket in `folder`; yields the requests that it got."""
    folder.mkdir(parents=True, exist_ok=True)
    asked: list[bytes] = []

    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            tasks.add(task)
        with suppress(ConnectionError), closing(writer):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)

    # By a short name: the folder may be deeper than the address of a socket may be long.
    descriptor = os.open(folder, os.O_PATH)
    server = await asyncio.start_unix_server(serve, f"/proc/self/fd/{descriptor}/{SERVER_SOCKET}")
    try:
        yield asked
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        os.close(descriptor)


async def refusal(folder: Path, **more: float) -> PostroomError:
    with pytest.raises(PostroomError) as refused:
        await fetch_card(folder, **more)
    return refused.value


async def test_the_card_comes_as_the_worker_serves_it(tmp_path: Path):
    body = json.dumps(CARD).encode()
    async with listening(tmp_path, whole(body)) as asked:
        assert await fetch_card(tmp_path) == body
    assert asked[0].startswith(b"GET /.well-known/agent-card.json HTTP/1.1\r\n")


async def test_a_folder_deeper_than_the_address_of_a_socket_may_be_long(tmp_path: Path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    async with listening(deep, whole(b"{}")):
        assert await fetch_card(deep) == b"{}"


async def test_a_socket_of_another_kind_is_refused(tmp_path: Path):
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as other:
        descriptor = os.open(tmp_path, os.O_PATH)
        other.bind(f"/proc/self/fd/{descriptor}/{SERVER_SOCKET}")
        os.close(descriptor)
        assert isinstance(await refusal(tmp_path), ProtocolViolation)


async def test_a_link_to_a_socket_is_not_followed(tmp_path: Path):
    folder = tmp_path / "worker"
    folder.mkdir()
    async with listening(tmp_path / "private", whole(b"{}")) as asked:
        (folder / SERVER_SOCKET).symlink_to(tmp_path / "private" / SERVER_SOCKET)
        assert isinstance(await refusal(folder), ProtocolViolation)
    assert asked == []


async def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path):
    async with listening(tmp_path / "private", whole(b"{}")) as asked:
        (tmp_path / "worker").symlink_to(tmp_path / "private")
        assert isinstance(await refusal(tmp_path / "worker"), ProtocolViolation)
    assert asked == []


@pytest.mark.parametrize("kind", ["file", "fifo", "folder"])
async def test_what_is_no_socket_is_not_read(tmp_path: Path, kind: str):
    place = tmp_path / SERVER_SOCKET
    match kind:
        case "file":
            place.write_text("{}")
        case "fifo":
            os.mkfifo(place)  # opened for reading it would block
        case "folder":
            place.mkdir()

    assert isinstance(await refusal(tmp_path), ProtocolViolation)


async def test_an_absent_socket_or_folder_is_a_worker_that_does_not_listen(tmp_path: Path):
    assert isinstance(await refusal(tmp_path), Conflict)
    assert isinstance(await refusal(tmp_path / "nowhere"), Conflict)


async def test_a_socket_that_nobody_listens_on_is_a_worker_that_does_not_listen(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SERVER_SOCKET))

    assert isinstance(await refusal(tmp_path), Conflict)


async def test_a_full_queue_is_not_waited_for(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as waiting:
        deaf.bind(str(tmp_path / SERVER_SOCKET))
        deaf.listen(0)
        waiting.connect(str(tmp_path / SERVER_SOCKET))

        assert isinstance(await refusal(tmp_path), Conflict)


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path):
    async def silent(_: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with listening(tmp_path, silent):
        assert isinstance(await refusal(tmp_path, timeout=0.1), RequestTimeout)


async def test_a_server_that_says_a_byte_at_a_time_is_given_up(tmp_path: Path):
    async def dripping(writer: asyncio.StreamWriter) -> None:
        for byte in whole(b"{" + b" " * 10_000):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)  # each comes in time, and all of them never

    async with listening(tmp_path, dripping):
        assert isinstance(await refusal(tmp_path, timeout=0.3), RequestTimeout)


async def test_an_answer_without_end_is_cut(tmp_path: Path):
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1;" + b"x" * 1000 + b"\r\n \r\n")  # nearly all of it is no body
            await writer.drain()
            sent += 1000

    async with listening(tmp_path, endless):
        assert isinstance(await refusal(tmp_path), ProtocolViolation)
    assert sent < 40 * MAX_CARD_BYTES


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
        whole(b"{}", "302 Found"),
        whole(b"{}", "404 Not Found"),
        whole(b"[1]"),
        whole(b"not JSON"),
        whole(b"\xff{}"),
        whole(b'{"a": NaN}'),
        whole(b'{"a": "\\ud800"}'),
        whole(b'{"a":' + b"[" * 50_000),
        whole(b'{"a": "' + b"x" * MAX_CARD_BYTES + b'"}'),
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}",
    ],
    ids=range(13),
)
async def test_a_hostile_answer_is_an_error_of_the_worker(tmp_path: Path, answer: bytes):
    async with listening(tmp_path, answer):
        assert isinstance(await refusal(tmp_path), ProtocolViolation)
