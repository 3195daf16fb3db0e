"""Key-value buckets, over a real server, beside nats-py's own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from library.nats.connections import open_connection
from library.nats.streams import jetstream
from library.servers import open_server
from postroom_a2a.errors import InvalidInput, LostUpdate, MessageTooLarge, NotFound, RequestTimeout
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket, BucketSettings
from postroom_a2a.nats.mailbox import Mailbox

pytestmark = pytest.mark.anyio

MEMORY = BucketSettings(storage="memory", key_ttl=True, marker_ttl=1)


async def test_reads_what_it_wrote_and_none_after_a_deletion(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "cards", MEMORY)
        first = await bucket.put("a.b", b"one")
        second = await bucket.put("a.b", b"two")
        entry = await bucket.get("a.b")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"two", second)
        assert second > first
        await bucket.delete("a.b")
        assert await bucket.get("a.b") is None
        await bucket.put("a.b", b"")
        entry = await bucket.get("a.b", fresh=True)
        assert entry is not None
        assert entry.value == b""
        await bucket.purge("a.b")
        assert await bucket.get("a.b") is None
        assert await bucket.get("never") is None


@pytest.mark.parametrize("direct", [True, False])
async def test_shares_a_bucket_with_nats_py(tmp_path: Path, direct: bool):
    async with jetstream(tmp_path) as (js, connection):
        theirs = await connection.jetstream().create_key_value(bucket="shared", direct=direct)
        ours = await Bucket.open(js, "shared", create=False)
        await theirs.put("x", b"1")
        entry = await ours.get("x")
        assert entry is not None
        assert entry.value == b"1"
        revision = await ours.update("x", b"2", entry.revision)
        assert (await theirs.get("x")).value == b"2"
        assert (await theirs.get("x")).revision == revision
        await theirs.delete("x")
        assert await ours.get("x") is None
        await ours.create("x", b"3")
        assert (await theirs.get("x")).value == b"3"
        await ours.purge("x")
        assert await ours.keys() == []


@pytest.mark.both_connections
async def test_a_write_that_expects_another_revision_is_refused(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "cas", MEMORY)
        revision = await bucket.create("k", b"1")
        with pytest.raises(LostUpdate):
            await bucket.create("k", b"2")
        newer = await bucket.update("k", b"2", revision)
        with pytest.raises(LostUpdate):
            await bucket.update("k", b"3", revision)
        with pytest.raises(LostUpdate):
            await bucket.delete("k", revision=revision)
        await bucket.delete("k", revision=newer)
        await bucket.create("k", b"4")


async def test_a_write_whose_answer_was_lost_is_not_refused_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "cards", MEMORY)
        ask = js.mailbox.ask
        lost = 0

        async def losing(subject: str, payload: bytes, **options: Any) -> Any:
            nonlocal lost
            frame = await ask(subject, payload, **options)
            if subject.startswith("$KV.") and not lost:
                lost += 1
                raise RequestTimeout("the answer was lost")
            return frame

        monkeypatch.setattr(js.mailbox, "ask", losing)
        first = await bucket.create("a", b"one")
        lost = 0
        second = await bucket.update("a", b"two", first)
        entry = await bucket.get("a")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"two", second)
        with pytest.raises(LostUpdate):
            await bucket.update("a", b"three", first)


async def test_of_many_creators_one_succeeds(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        buckets = await asyncio.gather(*(Bucket.open(js, "race", MEMORY) for _ in range(8)))
        outcomes = await asyncio.gather(
            *(bucket.create("k", b"%d" % n) for n, bucket in enumerate(buckets)),
            return_exceptions=True,
        )
        lost = [outcome for outcome in outcomes if isinstance(outcome, LostUpdate)]
        assert len(lost) == len(buckets) - 1


@pytest.mark.both_connections
async def test_a_watch_gives_what_is_there_then_none_then_changes(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "watched", MEMORY)
        await bucket.put("n.a", b"1")
        await bucket.put("n.gone", b"1")
        await bucket.delete("n.gone")
        await bucket.put("other.b", b"1")
        async with aclosing(bucket.watch("n.*")) as watch:
            first = await anext(watch)
            assert first is not None
            assert (first.key, first.value) == ("n.a", b"1")
            assert await anext(watch) is None
            await bucket.put("n.c", b"2")
            await bucket.delete("n.a")
            changes = [await anext(watch), await anext(watch)]
        assert [(c.key, c.value, c.deleted) for c in changes if c] == [
            ("n.c", b"2", False),
            ("n.a", b"", True),
        ]
        assert await bucket.keys("n.*") == ["n.c"]
        assert [entry.value for entry in await bucket.entries()] == [b"1", b"2"]
        assert await bucket.entries("none.>") == []


async def test_a_watch_of_an_empty_bucket_says_so_at_once(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "empty", MEMORY)
        async with aclosing(bucket.watch()) as watch:
            assert await anext(watch) is None


async def test_a_watch_whose_consumer_is_lost_reports_what_changed_meanwhile(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "lost", MEMORY)
        await bucket.put("same", b"1")
        await bucket.put("gone", b"1")
        async with aclosing(bucket.watch(heartbeat=0.1)) as watch:
            while await anext(watch) is not None:
                pass
            names = (await js.api("CONSUMER.NAMES.KV_lost"))["consumers"]
            for name in names:
                await js.api(f"CONSUMER.DELETE.KV_lost.{name}")
            await bucket.put("new", b"2")
            await js.api("STREAM.PURGE.KV_lost", {"filter": "$KV.lost.gone"})
            changes = [await anext(watch), await anext(watch)]
        assert [(c.key, c.deleted) for c in changes if c] == [("new", False), ("gone", True)]


async def test_a_watch_leaves_no_consumer_behind(tmp_path: Path):
    async with jetstream(tmp_path) as (js, connection):
        bucket = await Bucket.open(js, "clean", MEMORY)
        ended = await connection.subscribe("$JS.EVENT.ADVISORY.CONSUMER.DELETED.KV_clean.>")
        await bucket.put("a", b"1")
        assert await bucket.keys() == ["a"]
        await ended.next_msg(timeout=10)
        assert not (await js.api("CONSUMER.NAMES.KV_clean")).get("consumers")


async def test_a_slow_reader_gets_every_key(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "many", MEMORY)
        for start in range(0, 3000, 500):
            await asyncio.gather(
                *(bucket.put(f"k.{n}", b"x" * 1000) for n in range(start, start + 500))
            )
        assert len(await bucket.entries("k.*")) == 3000


async def test_a_key_with_a_time_to_live_goes_and_a_watch_says_so(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await Bucket.open(js, "ttl", MEMORY)
        assert bucket.has_ttl
        async with aclosing(bucket.watch()) as watch:
            assert await anext(watch) is None
            await bucket.put("short", b"1", ttl=1)
            entry = await anext(watch)
            assert entry is not None
            assert entry.ttl == 1
            entry = await anext(watch)
            assert entry is not None
            assert entry.deleted
        assert await bucket.get("short") is None
        assert await bucket.get("short", fresh=True) is None
        await bucket.create("short", b"2")


async def test_a_bucket_without_times_to_live_is_asked_to_have_them(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        plain = await Bucket.open(js, "old")
        assert not plain.has_ttl
        await plain.put("k", b"1", ttl=5)
        entry = await plain.get("k")
        assert entry is not None
        assert entry.ttl == 0
        assert (await Bucket.open(js, "old", BucketSettings(key_ttl=True))).has_ttl


async def test_malformed_names_and_keys_are_refused(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        with pytest.raises(InvalidInput):
            await Bucket.open(js, "a.b")
        with pytest.raises(NotFound):
            await Bucket.open(js, "none", create=False)
        bucket = await Bucket.open(js, "valid", MEMORY)
        for key in ("", ".a", "a.", "a..b", "a b", "*", "a.>", "é"):
            with pytest.raises(InvalidInput):
                await bucket.put(key, b"")
        for keys in ("", "a.>.b", "a..b", "a*"):
            with pytest.raises(InvalidInput):
                await bucket.keys(keys)


async def test_a_value_over_the_limit_of_the_server_is_refused_before_it_is_sent(tmp_path: Path):
    async with jetstream(tmp_path) as (js, connection):
        bucket = await Bucket.open(js, "large", MEMORY)
        with pytest.raises(MessageTooLarge):
            await bucket.put("k", bytes(connection.max_payload))


@pytest.mark.both_connections
async def test_a_watch_and_a_write_go_on_after_a_restart_of_nats_server(tmp_path: Path):
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        url = await first.enter_async_context(open_server(tmp_path))
        connection = await open_connection(url, reconnect_time_wait=0.02, max_reconnect_attempts=-1)
        bucket = await Bucket.open(JetStream(Mailbox(connection)), "kept")
        await bucket.put("before", b"1")
        watch = bucket.watch(heartbeat=0.2)
        while await anext(watch) is not None:
            pass
        await first.aclose()
        for ports in tmp_path.glob("*.ports"):
            ports.unlink()
        writing = asyncio.create_task(bucket.put("after", b"2"))
        await stack.enter_async_context(open_server(tmp_path, port=urlsplit(url).port or 0))
        revision = await writing
        change = await anext(watch)
        assert change is not None
        assert (change.key, change.revision) == ("after", revision)
        assert sorted(await bucket.keys()) == ["after", "before"]
        await watch.aclose()
        await connection.close()
