"""Object buckets, over a real server, beside nats-py's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from library.nats.streams import jetstream
from postroom_a2a.errors import (
    InvalidInput,
    MessageTooLarge,
    NotFound,
    ProtocolViolation,
    StreamFull,
)
from postroom_a2a.nats.objects import ObjectBucket

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 6000


@pytest.mark.both_connections
async def test_an_object_comes_back_as_it_was_stored(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await ObjectBucket.open(js, "objects", storage="memory")
        for content in (CONTENT, b"", b"x"):
            info = await bucket.put("some name/é", content)
            assert info.size == len(content)
            assert await bucket.get("some name/é", limit=len(CONTENT)) == content
        state = (await js.api("STREAM.INFO.OBJ_objects"))["state"]
        assert state["messages"] == 2  # the last content and what it is


@pytest.mark.parametrize("size", [0, 1, 1_000_000])
async def test_shares_a_bucket_with_nats_py(tmp_path: Path, size: int):
    async with jetstream(tmp_path) as (js, connection):
        theirs = await connection.jetstream().create_object_store("shared")
        ours = await ObjectBucket.open(js, "shared", create=False)
        await theirs.put("theirs", CONTENT[:size])
        assert await ours.get("theirs", limit=size) == CONTENT[:size]
        await ours.put("ours", CONTENT[:size])
        assert (await theirs.get("ours")).data == CONTENT[:size]


async def test_an_object_that_is_gone_is_not_found(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await ObjectBucket.open(js, "gone", storage="memory")
        with pytest.raises(NotFound):
            await bucket.get("never", limit=1)
        await bucket.put("deleted", b"1")
        await bucket.delete("deleted")
        await bucket.delete("deleted")
        with pytest.raises(NotFound):
            await bucket.get("deleted", limit=1)
        info = await bucket.put("half", b"1")
        await js.api("STREAM.PURGE.OBJ_gone", {"filter": f"$O.gone.C.{info.nuid}"})
        with pytest.raises(NotFound):
            await bucket.get("half", limit=1)


async def test_a_changed_or_too_large_object_is_refused(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await ObjectBucket.open(js, "bad", storage="memory")
        info = await bucket.put("o", b"right")
        with pytest.raises(MessageTooLarge):
            await bucket.get("o", limit=4)
        await js.api("STREAM.PURGE.OBJ_bad", {"filter": f"$O.bad.C.{info.nuid}"})
        await js.publish(f"$O.bad.C.{info.nuid}", b"wrong")
        with pytest.raises(ProtocolViolation):
            await bucket.get("o", limit=5)


async def test_a_full_bucket_refuses_and_keeps_nothing_of_it(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await ObjectBucket.open(js, "full", storage="memory", max_bytes=600_000)
        with pytest.raises(StreamFull):
            await bucket.put("o", CONTENT)
        assert (await js.api("STREAM.INFO.OBJ_full"))["state"]["messages"] == 0


async def test_malformed_names_of_objects_are_refused(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        with pytest.raises(InvalidInput):
            await ObjectBucket.open(js, "a.b")
        with pytest.raises(NotFound):
            await ObjectBucket.open(js, "none", create=False)
        bucket = await ObjectBucket.open(js, "objects", storage="memory")
        with pytest.raises(InvalidInput):
            await bucket.put("", b"")
