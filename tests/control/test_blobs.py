"""Blobs over HTTP, as the operator and as workers through their doors; the log says who may read what."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.blobs import folder as folder_module
from postroom.blobs import service as office_module
from postroom.blobs.folder import BlobFolder
from postroom.errors import RequestTimeout, StateUnwritable
from postroom.protocol import subjects
from postroom.protocol.blobs import blob_url
from postroom.protocol.envelope import Envelope
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifact_update
from tests.control.taskroom import ALL_BLOBS, LARGEST_BLOB, Hand, TaskRoom, task_room
from tests.control.test_worker_routes import door_of

pytestmark = pytest.mark.anyio

CONTENT = b"\x00 what is too large for a message \xff" * 1000


def named(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


NAME = named(CONTENT)
PATH = f"/v1/blobs/{NAME}"


def files(room: TaskRoom) -> list[Path]:
    """Every file of the blobs."""
    return [path for path in room.blob_folder.rglob("*") if path.is_file()]


async def send(hand: Hand, to: Hand, sha256: str) -> None:
    """A message whose second part is a blob; it is stored, and perhaps not folded yet."""
    new = secrets.token_hex(16)
    message = text_message(new, "look") | {"parts": [{"text": "look"}, {"url": blob_url(sha256)}]}
    envelope = Envelope(new, to.uid, message, time.time())
    await hand.bus.publish(subjects.inbox(to.uid, hand.uid), envelope.encode(), id=new)


async def give(hand: Hand, task: str, sha256: str) -> None:
    """Take a task and make an artifact by reference."""
    await hand.take(task)
    await hand.say(task, TaskState.WORKING, attempt=1)
    part = {"url": blob_url(sha256), "mediaType": "application/pdf", "filename": "a b.pdf"}
    artifact = {"artifactId": "a", "name": "report", "parts": [part]}
    await hand._store(task, lambda record: record.then(artifact_update(record.task, artifact)))


@asynccontextmanager
async def doors(room: TaskRoom, *hands: Hand) -> AsyncGenerator[list[httpx2.AsyncClient]]:
    """What each worker reaches through its door."""
    if not hands:
        yield []
        return
    async with door_of(room, hands[0]) as first, doors(room, *hands[1:]) as others:
        yield [first, *others]


# ── what is stored ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("blob-kept-by-hash")
async def test_what_is_uploaded_is_given_back_and_kept_under_its_hash_alone(tmp_path: Path):
    async with task_room(tmp_path) as room:
        headers = {"Content-Type": "image/png; x=1"}
        first = await room.api.put(PATH, content=CONTENT, headers=headers)
        again = await room.api.put(PATH, content=b"never read")
        got = await room.api.get(PATH)
        head = await room.api.head(PATH)
        known = await room.api.get(PATH, headers={"If-None-Match": got.headers["etag"]})

        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["url"] == again.json()["url"] == f"blob:sha256:{NAME}"
        assert first.json()["size"] == len(CONTENT)
        assert (got.status_code, got.content) == (200, CONTENT)
        shown = {name: got.headers[name] for name in ("content-type", "etag", "content-length")}
        assert shown == {
            "content-type": "application/octet-stream",
            "etag": f'"{NAME}"',
            "content-length": str(len(CONTENT)),
        }
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["content-disposition"].startswith("attachment")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(CONTENT))
        assert (known.status_code, known.content) == (304, b"")
        (path,) = files(room)
        assert path == room.blob_folder / NAME[:2] / NAME
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_a_blob_is_never_served_as_a_page(tmp_path: Path):
    async with task_room(tmp_path) as room:
        await room.api.put(PATH, content=CONTENT, headers={"Content-Type": "text/html"})
        assert (await room.api.get(PATH)).headers["content-type"] == "application/octet-stream"


@pytest.mark.requirement("blob-kept-by-hash")
async def test_a_content_with_another_hash_is_refused_and_leaves_nothing(tmp_path: Path):
    async with task_room(tmp_path) as room:
        wrong = await room.api.put(f"/v1/blobs/{'0' * 64}", content=CONTENT)
        malformed = await room.api.put("/v1/blobs/xyz", content=CONTENT)

        assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-input")
        assert NAME in wrong.json()["detail"]
        assert malformed.status_code == 422
        assert (await room.api.get(PATH)).status_code == 404
        assert files(room) == []


async def test_a_content_whose_hash_is_not_known_before_is_named_by_its_answer(tmp_path: Path):
    async def unknown_length() -> AsyncIterator[bytes]:
        yield CONTENT[:10]
        yield CONTENT[10:]

    async with task_room(tmp_path) as room:
        made = await room.api.post("/v1/blobs", content=unknown_length())
        assert (made.status_code, made.json()["sha256"]) == (201, NAME)
        (listed,) = (await room.api.get("/v1/blobs")).json()["blobs"]
        assert (listed["sha256"], listed["media_type"]) == (NAME, "application/octet-stream")
        assert (await room.api.get(PATH)).content == CONTENT


async def test_the_same_content_at_once_is_one_blob(tmp_path: Path):
    async with task_room(tmp_path) as room:
        done = await asyncio.gather(*(room.api.put(PATH, content=CONTENT) for _ in range(8)))
        assert {answer.status_code for answer in done} <= {200, 201}
        assert len(files(room)) == 1
        assert room.parts.blobs._folder.used == -(-len(CONTENT) // 4096) * 4096


@pytest.mark.requirement("blob-kept-by-hash")
async def test_what_is_over_a_bound_is_refused_and_leaves_nothing(tmp_path: Path):
    async def too_much() -> AsyncIterator[bytes]:
        for _ in range(3 * LARGEST_BLOB // 65536):
            yield bytes(65536)

    async with task_room(tmp_path) as room:
        told = await room.api.post("/v1/blobs", content=bytes(LARGEST_BLOB + 1))
        untold = await room.api.post("/v1/blobs", content=too_much())
        for number in range(ALL_BLOBS // LARGEST_BLOB):
            last = await room.api.post("/v1/blobs", content=bytes([number]) * LARGEST_BLOB)
            assert last.status_code == 201
        full = await room.api.post("/v1/blobs", content=b"one more")

        for answer in (told, untold):
            assert (answer.status_code, answer.json()["code"]) == (413, "blob-too-large")
        assert (full.status_code, full.json()["code"]) == (507, "blobs-full")
        assert full.headers["retry-after"]
        assert len(files(room)) == 4

        (largest, *_) = (await room.api.get("/v1/blobs")).json()["blobs"]
        assert (await room.api.delete(f"/v1/blobs/{largest['sha256']}")).status_code == 204
        assert (await room.api.post("/v1/blobs", content=b"one more")).status_code == 201
        assert len(files(room)) == 4


@pytest.mark.requirement("blob-kept-by-hash")
async def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(_descriptor: int, _data: Any) -> int:
        raise OSError(28, "No space left on device")

    async with task_room(tmp_path) as room:
        with monkeypatch.context() as patch:
            patch.setattr(folder_module.os, "write", full)
            refused = await room.api.put(PATH, content=CONTENT)
        with monkeypatch.context() as patch:
            patch.setattr(folder_module, "RESERVE", 1 << 62)
            reserved = await room.api.put(PATH, content=CONTENT)

        for answer in (refused, reserved):
            assert (answer.status_code, answer.json()["code"]) == (503, "state-unwritable")
        assert (files(room), room.parts.blobs._folder.used) == ([], 0)
        assert (await room.api.put(PATH, content=CONTENT)).status_code == 201


@pytest.mark.requirement("blob-kept-by-hash")
async def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path):
    async with task_room(tmp_path) as room:
        head = (
            f"PUT {PATH} HTTP/1.1\r\nHost: {room.site.host}\r\n"
            f"Authorization: Bearer operator-key\r\nContent-Length: {len(CONTENT)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", room.site.port)
        writer.write(head.encode() + CONTENT[:-1])
        await writer.drain()
        async with asyncio.timeout(10):
            while not files(room):  # noqa: ASYNC110 (a file that another task makes)
                await asyncio.sleep(0.01)
            writer.close()
            await reader.read()
            while files(room):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert room.parts.blobs._folder.used == 0
        assert (await room.api.get(PATH)).status_code == 404


@pytest.mark.requirement("blob-kept-by-hash")
async def test_a_start_removes_what_was_never_answered_for_and_keeps_the_rest(tmp_path: Path):
    async with task_room(tmp_path) as room:
        await room.api.put(PATH, content=CONTENT)
        place = room.blob_folder
        (place / "new" / "partial").write_bytes(CONTENT[:100])
        orphan = place / "ab" / ("ab" + "0" * 62)
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"its row was never written")

        await room.parts.blobs.open()

        assert [path.name for path in files(room)] == [NAME]
        assert (await room.api.get(PATH)).content == CONTENT


async def test_uploads_at_once_are_bounded_for_each_agent(tmp_path: Path):
    go = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        await go.wait()

    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(office_module.UPLOADS_EACH):
                tasks.create_task(room.parts.blobs.take(slow(), alice.uid, "text/plain"))
            await asyncio.sleep(0)
            async with doors(room, alice) as (door,):
                refused = await door.put(PATH, content=CONTENT)
            go.set()
        assert (refused.status_code, refused.json()["code"]) == (429, "refused")


# ── who may read ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("blob-kept-by-hash")
async def test_a_message_passes_a_blob_on_to_its_recipient_and_to_nobody_else(tmp_path: Path):
    async with task_room(tmp_path) as room:
        hands = [await room.worker(nick) for nick in ("alice", "bob", "carol")]
        async with doors(room, *hands) as (alice, bob, carol):
            await alice.put(PATH, content=CONTENT)
            early = await bob.get(PATH)
            await send(hands[0], hands[1], NAME)
            # Asked for at once, as a worker may that has the message before it is folded.
            assert (await bob.get(PATH)).content == CONTENT
            await send(hands[1], hands[2], NAME)
            assert (await carol.get(PATH)).content == CONTENT

            unknown = await bob.get(f"/v1/blobs/{'0' * 64}")
            assert (early.status_code, unknown.status_code) == (404, 404)
            assert early.json() == unknown.json()
        assert (await room.api.get(PATH)).content == CONTENT


@pytest.mark.requirement("blob-kept-by-hash")
async def test_an_artifact_passes_a_blob_on_to_who_asked_for_the_task(tmp_path: Path):
    async with task_room(tmp_path) as room:
        hands = [await room.worker(nick) for nick in ("alice", "bob")]
        task = (await room.delegate("@alice"))["id"]
        async with doors(room, *hands) as (alice, bob):
            await alice.put(PATH, content=CONTENT)
            await give(hands[0], task, NAME)

            assert (await bob.get(PATH)).status_code == 404
        shown = await room.get(f"/{task}")
        (artifact,) = shown["artifacts"]
        assert artifact["files"] == [
            {
                "url": blob_url(NAME),
                "mediaType": "application/pdf",
                "filename": "a b.pdf",
                "size": len(CONTENT),
            }
        ]
        (*_, event) = (await room.get(f"/{task}/events"))["events"]
        assert event["text"] == blob_url(NAME)


@pytest.mark.requirement("blob-kept-by-hash")
async def test_naming_a_blob_that_one_may_not_read_gives_nobody_anything(tmp_path: Path):
    async with task_room(tmp_path) as room:
        hands = [await room.worker(nick) for nick in ("alice", "mallory", "bob")]
        async with doors(room, *hands) as (alice, mallory, bob):
            await alice.put(PATH, content=CONTENT)
            await send(hands[1], hands[1], NAME)
            await send(hands[1], hands[2], NAME)
            task = (await room.delegate("@mallory"))["id"]
            await give(hands[1], task, NAME)

            assert (await mallory.get(PATH)).status_code == 404
            assert (await bob.get(PATH)).status_code == 404


@pytest.mark.requirement("blob-kept-by-hash")
async def test_an_upload_tells_nobody_that_another_has_the_content(tmp_path: Path):
    async with task_room(tmp_path) as room:
        hands = [await room.worker(nick) for nick in ("alice", "mallory")]
        async with doors(room, *hands) as (alice, mallory):
            await alice.put(PATH, content=CONTENT)
            fished = await mallory.put(PATH, content=b"")
            assert (fished.status_code, fished.json()["code"]) == (422, "invalid-input")
            assert (await mallory.get(PATH)).status_code == 404
            assert (await mallory.put(PATH, content=CONTENT)).status_code == 201
            assert (await mallory.get(PATH)).content == CONTENT


@pytest.mark.requirement("blob-kept-by-hash")
async def test_no_answer_about_ones_own_blob_or_task_tells_that_another_has_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[str] = []
    sync = folder_module.sync

    def noted(folder: Path) -> None:
        synced.append(folder.name)
        sync(folder)

    monkeypatch.setattr(folder_module, "sync", noted)
    async with task_room(tmp_path) as room:
        hands = [await room.worker(nick) for nick in ("alice", "mallory")]
        async with doors(room, *hands) as (alice, mallory):
            await alice.put(PATH, content=CONTENT, headers={"Content-Type": "image/png"})
            task = (await room.delegate("@mallory"))["id"]
            await give(hands[1], task, NAME)
            (artifact,) = (await room.get(f"/{task}"))["artifacts"]
            assert artifact["files"][0]["size"] is None

            before = synced.copy()
            text = {"Content-Type": "text/plain"}
            new = await mallory.post("/v1/blobs", content=b"new", headers=text)
            known = await mallory.post("/v1/blobs", content=CONTENT, headers=text)
            first, second = [
                await mallory.get(f"/v1/blobs/{answer.json()['sha256']}") for answer in (new, known)
            ]
            assert first.headers["content-type"] == second.headers["content-type"]
            # As much work on the disk for the one as for the other.
            assert [name == room.blob_folder.name for name in synced] == [False, True] * 3
            assert len(before) == 2
            assert room.parts.blobs._folder.used == 4096 + -(-len(CONTENT) // 4096) * 4096


async def test_an_upload_that_takes_too_long_gives_its_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    monkeypatch.setattr(office_module, "LONGEST", 0.05)
    async with task_room(tmp_path) as room:
        with pytest.raises(RequestTimeout):
            await room.parts.blobs.take(endless(), "a" * 32, "text/plain")
        assert (files(room), room.parts.blobs._folder.used) == ([], 0)
        assert not room.parts.blobs._uploads


async def test_what_the_operator_uploads_every_agent_may_read_that_knows_its_hash(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice, bob = [await room.worker(nick) for nick in ("alice", "bob")]
        async with doors(room, alice, bob) as (first, second):
            await first.put(PATH, content=CONTENT)
            assert (await second.get(PATH)).status_code == 404
            assert (await room.api.put(PATH)).status_code == 200
            assert (await second.get(PATH)).content == CONTENT


async def test_only_the_operator_lists_and_removes(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        async with doors(room, alice) as (door,):
            await door.put(PATH, content=CONTENT)
            assert (await door.get("/v1/blobs")).status_code == 403
            assert (await door.delete(PATH)).status_code == 403
        async with httpx2.AsyncClient(base_url=f"http://{room.site.host}") as nobody:
            assert (await nobody.get(PATH)).status_code == 401
            assert (await nobody.put(PATH, content=CONTENT)).status_code == 401
        assert (await room.api.delete(PATH)).status_code == 204
        assert (await room.api.delete(PATH)).status_code == 404


# ── for how long ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_week_after_its_upload_what_nothing_names_is_removed(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice, bob = [await room.worker(nick) for nick in ("alice", "bob")]
        kept, fresh = b"named", b"uploaded again"
        async with doors(room, alice, bob) as (door, other):
            for content in (CONTENT, kept, fresh):
                await door.put(f"/v1/blobs/{named(content)}", content=content)
            await send(alice, bob, named(kept))
            assert (await other.get(f"/v1/blobs/{named(kept)}")).status_code == 200
            assert await room.parts.blobs.sweep() == 0

            room.parts.blobs._clock = lambda: time.time() + office_module.KEEP + 1
            await door.put(f"/v1/blobs/{named(fresh)}", content=fresh)
            assert await room.parts.blobs.sweep() == 1

            assert (await door.get(PATH)).status_code == 404
        assert sorted(path.name for path in files(room)) == sorted(map(named, (kept, fresh)))


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "blobs").write_text("a file")
    with pytest.raises(StateUnwritable):
        BlobFolder(tmp_path / "blobs", largest=1, most=1).open({})
