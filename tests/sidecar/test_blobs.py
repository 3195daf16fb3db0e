"""Blobs as an agent has them: the local API and `postroom-agent`, before a real control plane."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sys
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.errors import InvalidInput
from postroom.http.server import HttpServer
from postroom.identity.tokens import digest
from postroom.protocol.blobs import blob_url, named_in, sha256_of
from postroom.protocol.verbs import Artifact, Delegate
from postroom.sidecar.adapters import MalformedLine
from postroom.sidecar.adapters.jsonl import JsonLines
from postroom.sidecar.api import LocalApi
from postroom.sidecar.control_client import BlobRelay, direct
from tests.control.serving import serving
from tests.control.taskroom import LARGEST_BLOB, TaskRoom, task_room
from tests.sidecar.printing import printed
from tests.sidecar.task_stub import OWN, TaskStub

pytestmark = pytest.mark.anyio

CONTENT = random.Random(1).randbytes(300_000)
NAME = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Desk:
    """A program's place inside a sandbox, and the control plane outside."""

    room: TaskRoom
    tasks: TaskStub
    http: httpx2.AsyncClient
    folder: Path
    url: str

    async def run(self, *words: str, given: bytes = b"") -> tuple[int, bytes, str]:
        """`postroom-agent`: its exit code, what it printed, and what it complained of."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postroom.agentcli.main", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env={"POSTROOM_API": self.url, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate(given)
        return process.returncode or 0, out, err.decode()

    def stored(self) -> list[str]:
        """Names of all files of the control plane's blobs."""
        return [path.name for path in self.room.blob_folder.rglob("*") if path.is_file()]


@asynccontextmanager
async def local_api(port: int, token: str) -> AsyncGenerator[tuple[TaskStub, str]]:
    """A local API whose control plane is on that port."""
    tasks, server = TaskStub(), HttpServer()
    relay = BlobRelay(direct(f"http://127.0.0.1:{port}", token))
    api = LocalApi(tasks, {}, server.port, None, relay)
    async with server.answer_with(api.handle):
        yield tasks, f"http://127.0.0.1:{server.port}"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with task_room(tmp_path) as room, AsyncExitStack() as stack:
        worker = await room.worker("alice")

        room.site.router.admit(worker.uid, "default")

        async def as_worker(scope: Any, receive: Any, send: Any) -> None:
            await room.site.router({**scope, "postroom.worker": worker.uid}, receive, send)

        await room.parts.database.write(
            lambda store: store.workers.set_token(worker.uid, digest("t"))
        )
        door = await stack.enter_async_context(serving(as_worker))
        tasks, url = await stack.enter_async_context(local_api(door.port, "t"))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url))
        yield Desk(room, tasks, http, tmp_path, url)


async def test_a_file_is_stored_and_fetched(desk: Desk):
    (desk.folder / "a.png").write_bytes(CONTENT)

    code, url, _ = await desk.run("blob", "put", "a.png")
    piped = await desk.run("blob", "put", "-", "--type", "text/csv", given=b"1,2")
    fetched = await desk.run("blob", "get", blob_url(NAME), "-o", "b.png")
    printed = await desk.run("blob", "get", blob_url(NAME))

    assert (code, url.decode().strip()) == (0, blob_url(NAME))
    assert (fetched[0], (desk.folder / "b.png").read_bytes()) == (0, CONTENT)
    assert printed == (0, CONTENT, "")
    got = await desk.http.get(f"/v1/blobs/{NAME}")
    assert (got.headers["etag"], got.content) == (f'"{NAME}"', CONTENT)
    csv = await desk.http.get(f"/v1/blobs/{sha256_of(piped[1].decode().strip())}")
    assert csv.text == "1,2"


async def test_what_is_not_there_is_not_found(desk: Desk):
    code, out, err = await desk.run("blob", "get", blob_url("0" * 64), "-o", "x")

    assert (code, out) == (4, b"")
    assert "no such blob" in err
    assert not (desk.folder / "x").exists()
    assert (await desk.run("blob", "get", "https://example.com/"))[0] == 2


@pytest.mark.requirement("blob-kept-by-hash")
async def test_a_file_that_is_too_large_is_refused_in_the_midst_of_it(desk: Desk):
    (desk.folder / "large").write_bytes(bytes(4 * LARGEST_BLOB))

    code, _, err = await desk.run("blob", "put", "large")

    assert (code, desk.stored()) == (2, [])
    assert "a blob has at most" in err


@pytest.mark.requirement("blob-kept-by-hash")
async def test_an_upload_that_its_program_breaks_off_leaves_nothing(desk: Desk):
    port = int(desk.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"PUT /v1/blobs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 900000\r\n\r\n"
    writer.write(head.encode() + CONTENT)
    async with asyncio.timeout(10):
        while not desk.stored():  # noqa: ASYNC110 (files that another task makes)
            await asyncio.sleep(0.01)
        writer.close()
        while desk.stored():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.requirement("task-stored-once")
async def test_a_file_as_artifact_goes_in_the_task_if_it_is_short_text_and_else_as_a_blob(
    desk: Desk,
):
    (desk.folder / "short.txt").write_text("short\n")
    (desk.folder / "long.txt").write_text("x" * 70_000)
    (desk.folder / "a.bin").write_bytes(b"\xff\xfe")
    await desk.tasks.delegate(Delegate(OWN, "", "add"))

    for name in ("short.txt", "long.txt", "a.bin"):
        code, _, err = await desk.run("artifact", "--file", name)
        assert code == 0, err

    short, long, binary = [said for said in desk.tasks.said if isinstance(said, Artifact)]
    assert (short.name, short.text, short.url) == ("short.txt", "short\n", "")
    assert (long.text, long.media_type, long.filename) == ("", "text/plain", "long.txt")
    assert sha256_of(long.url) == hashlib.sha256(b"x" * 70_000).hexdigest()
    assert binary.url == blob_url(hashlib.sha256(b"\xff\xfe").hexdigest())

    code, _, err = await desk.run("artifact", "both", "--file", "a.bin", "--data", '{"n": 1}')
    assert code == 0, err
    whole = desk.tasks.said[-1]
    assert isinstance(whole, Artifact)
    kind = "application/octet-stream"
    assert whole.content.parts == (
        {"text": "both"},
        {"url": binary.url, "mediaType": kind, "filename": "a.bin"},
        {"data": {"n": 1}},
    )


async def lying(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    """A control plane that stores and gives something else."""
    if scope["method"] == "POST":
        while (await receive()).get("more_body"):
            pass
        body, status = b'{"url": "blob:sha256:' + b"0" * 64 + b'", "size": 1}', 201
    else:
        body, status = b"something else", 200
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.requirement("blob-kept-by-hash")
async def test_what_is_not_what_its_name_says_is_not_taken(tmp_path: Path):
    async with serving(lying) as site, local_api(site.port, "t") as (tasks, url):
        desk = Desk(None, tasks, None, tmp_path, url)  # ty: ignore[invalid-argument-type]
        put = await desk.run("blob", "put", "-", given=CONTENT)
        got = await desk.run("blob", "get", blob_url(NAME), "-o", "x")
    assert (put[0], got[0]) == (8, 8)
    assert list(tmp_path.iterdir()) == []


async def test_without_a_control_plane_it_is_told(tmp_path: Path):
    async with serving(lying) as site:
        port = site.port
    async with local_api(port, "t") as (tasks, url):
        desk = Desk(None, tasks, None, tmp_path, url)  # ty: ignore[invalid-argument-type]
        code, _, err = await desk.run("blob", "put", "-", given=CONTENT)
    assert (code, "control plane" in err) == (10, True)


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_artifact_line_names_a_blob_or_has_a_text():
    lines, url = JsonLines(), blob_url(NAME)
    fields = f'"url":"{url}","mediaType":"image/png","filename":"a.png"'

    (given,) = printed(lines, f'{{"type":"artifact","name":"plot",{fields}}}')
    (both,) = printed(lines, f'{{"type":"artifact","text":"x",{fields}}}')
    (other,) = printed(lines, '{"type":"artifact","url":"https://example.com/a.png"}')

    assert given == Artifact("", "", name="plot", url=url, media_type="image/png", filename="a.png")
    assert isinstance(both, MalformedLine)
    assert isinstance(other, MalformedLine)


def test_only_a_whole_url_of_a_part_names_a_blob():
    url = blob_url(NAME)
    parts = [{"url": url}, {"url": url + "0"}, {"url": 7}, {"text": url}, "x", {"url": url}]
    assert named_in({"history": [[{"parts": parts}]], "url": blob_url("1" * 64)}) == [NAME]
    assert named_in({"parts": {"url": url}}) == []
    for wrong in ("", url.upper(), url[:-1], url + "0", f"https://{url}"):
        with pytest.raises(InvalidInput):
            sha256_of(wrong)
