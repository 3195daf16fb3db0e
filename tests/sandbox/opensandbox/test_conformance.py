"""The double of execd answers as the recorded one did: that is what makes the tests against it worth anything."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn

from postroom.http.client import by_tcp
from postroom.http.stream_socket import SocketRefused, StreamSocket
from tests.sandbox.opensandbox.execd import TOKEN, Execd

pytestmark = pytest.mark.anyio

RECORDING = Path(__file__).with_name("recording.jsonl")
EXCHANGES = [json.loads(line) for line in RECORDING.read_text().splitlines()]
NOT_SERVED = {"metrics_watch", "isolated_caps"}
"""What Postroom never asks for; the last one the recorded execd did not know either."""

ELSEWHERE = {"proxy", "pty_ws"}
"""Held to the recording by tests of their own."""

VOLATILE = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
KINDS = ("stdout", "stderr")


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(Execd("sesame", argv=False).app(), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server._serve, [listener])
        async with httpx.AsyncClient(base_url=base, timeout=20, trust_env=False) as client:
            yield client
        server.should_exit = server.force_exit = True


def request_of(exchange: dict[str, Any], root: Path, ids: dict[str, str]) -> dict[str, Any]:
    asked = exchange["req"]
    headers = {TOKEN: "sesame"} if asked["token"] else {}
    if exchange["name"] == "bad_token":
        headers[TOKEN] = "wrong"
    text = asked["body"] if isinstance(asked["body"], str) else json.dumps(asked["body"])
    body = b"" if asked["body"] is None else text.replace("{root}", str(root)).encode()
    if exchange["name"] == "upload":
        headers["Content-Type"] = "multipart/form-data; boundary=xXbXx"
    if "range" in exchange["name"]:
        wanted = exchange["resp"]["headers"]["Content-Range"]
        first = re.search(r"(\d+)-(\d+)/", wanted)
        headers["Range"] = f"bytes={first[1]}-{first[2]}" if first else "bytes=900-950"
    path = asked["path"].replace("{root}", str(root))
    for old, new in ids.items():
        path = path.replace(old, new)
    return {"method": asked["method"], "url": path, "headers": headers, "content": body}


def learn(recorded: str, answered: str, ids: dict[str, str]) -> None:
    """Which id of this run stands for which of the recording."""
    for old, new in zip(VOLATILE.findall(recorded), VOLATILE.findall(answered), strict=False):
        ids.setdefault(old, new)


def shape(value: Any, root: str) -> Any:
    """A JSON value without what no two runs share."""
    if isinstance(value, dict):
        return {
            key.replace(root, "{root}"): ("*" if key in VARYING else shape(inner, root))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [shape(inner, root) for inner in value]
    if isinstance(value, str):
        return VOLATILE.sub("*", value.replace(root, "{root}"))
    return value


VARYING = {
    *("timestamp", "execution_time", "started_at", "finished_at", "modified_at", "created_at"),
    *("owner", "group", "cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "size"),
}


def frames(body: str, root: str) -> list[Any]:
    """Frames in order, but those of the two outputs, whose order no one keeps."""
    found = [shape(json.loads(part), root) for part in body.split("\n\n") if part]
    order = {kind: number for number, kind in enumerate(KINDS, 1)}
    first = [f for f in found if f["type"] not in order]
    return first + sorted((f for f in found if f["type"] in order), key=lambda f: order[f["type"]])


async def test_every_recorded_request_gets_the_recorded_answer(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    ids: dict[str, str] = {}
    compared = 0
    for exchange in EXCHANGES:
        name = exchange["name"]
        if name in NOT_SERVED | ELSEWHERE:
            continue
        if name in {"status_running", "logs_cursor0"}:  # both were asked for after its end
            await until_done(client, ids)
        if name == "status_interrupted":
            await until_done(client, ids, "da5b9ee3f71f4d548cd157ea685c126b")
        recorded = exchange["resp"]
        answer = await client.request(**request_of(exchange, tmp_path, ids))
        assert answer.status_code == recorded["status"], (name, answer.text)
        expected, said = recorded["body"], answer.text
        learn(expected, said, ids)
        for header in ("Content-Type", "Content-Range", "Execd-Commands-Tail-Cursor"):
            assert answer.headers.get(header) == recorded["headers"].get(header), (name, header)
        if recorded["headers"].get("Content-Type") == "text/event-stream":
            assert frames(said, str(tmp_path)) == frames(expected, str(tmp_path)), name
            assert "data:" not in said
        elif "json" in recorded["headers"].get("Content-Type", ""):
            root = str(tmp_path)
            assert shape(json.loads(said), root) == shape(json.loads(expected), root), name
        else:
            assert said == expected, name
        compared += 1
    assert compared == len(EXCHANGES) - len(NOT_SERVED | ELSEWHERE)


async def until_done(client: httpx.AsyncClient, ids: dict[str, str], old: str = "") -> None:
    command = ids[old or "a87f912c38d340efb29421564fa69297"]
    while True:
        answer = await client.get(f"/command/status/{command}", headers={TOKEN: "sesame"})
        if not answer.json()["running"]:
            return


async def test_a_port_of_the_container_is_reached_through_the_proxy(
    client: httpx.AsyncClient,
) -> None:
    port = client.base_url.port
    answer = await client.get(f"/proxy/{port}/ping", headers={TOKEN: "sesame"})
    assert answer.status_code == 401  # the token is execd's own, and goes no further


async def test_a_terminal_speaks_as_the_recorded_one(client: httpx.AsyncClient) -> None:
    recorded = next(one for one in EXCHANGES if one["name"] == "pty_ws")["frames"]
    came = [(frame[1], frame[2]) for frame in recorded if frame[0] == "<"]
    held = {TOKEN: "sesame"}
    made = await client.post("/pty", json={"cwd": "/tmp"}, headers=held)
    port = client.base_url.port or 0
    where = (
        "execd",
        by_tcp("127.0.0.1", port),
        "127.0.0.1",
        f"/pty/{made.json()['session_id']}/ws",
    )
    socket = await StreamSocket.connect(*where, held.items())
    with pytest.raises(SocketRefused) as second:
        await StreamSocket.connect(*where, held.items())
    assert f"{second.value.refusal.status} Conflict" in [
        frame[1].removeprefix("HTTP/1.1 ") for frame in recorded if frame[0] == "second connection"
    ]
    try:
        async with asyncio.timeout(20):
            texts, printed = await conversation(socket)
    finally:
        socket.abort()
    # Its pong is where this test asks for it, not where the recording does.
    assert sorted(texts) == sorted(VOLATILE.sub("*", said) for kind, said in came if kind == 1)
    for said in ("echo marker-$((20+22))\r\n", "marker-42\r\n", "exit 7\r\n"):
        assert said.encode() in printed
    assert socket.closed == (1000, "process exited")
    assert next(said for kind, said in came if kind == 8)[2:] == "process exited"


async def conversation(socket: StreamSocket) -> tuple[list[str], bytes]:
    """Its text frames, and what the shell printed."""
    texts: list[str] = []
    printed = b""
    typed = [b"\0echo marker-$((20+22))\n", b"\0exit 7\n"]
    await socket.send('{"type":"ping"}')
    while (message := await socket.receive()) is not None:
        if isinstance(message, str):
            texts.append(VOLATILE.sub("*", message))
            continue
        assert message[0] == 1
        printed += message[1:]
        if printed.endswith((b"$ ", b"# ")) and typed:  # a user's prompt, or root's
            await socket.send(typed.pop(0))
    return texts, printed
