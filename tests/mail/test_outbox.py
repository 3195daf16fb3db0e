"""Announcements: stored once, folded, shown to everybody, and given up as the user says."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from postroom.blobs import rules as blob_rules
from postroom.errors import InvalidInput, NotFound
from postroom.feed.events import streamed
from postroom.feed.records import announcements
from postroom.mail import outbox
from postroom.projection.retention import Pruner
from postroom.projection.rules import fold
from postroom.protocol import subjects
from postroom.protocol.blobs import PREFIX
from postroom.protocol.content import Content
from postroom.protocol.envelope import EVERYBODY, Envelope
from postroom.settings.keeping import DAY, keeping
from postroom.store.blobs import BlobRow
from postroom_a2a.messages import text_message
from tests.mail.desk import BACKENDS, NOW, SECONDS, Desk, Worker, running_desk

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("client-stream-resumes")]

FILE = {"url": "https://a.example/b.csv", "mediaType": "text/csv", "filename": "b.csv"}
DATA = {"data": {"rows": [1, None]}, "metadata": {"kept_as_it_is": 1}}


async def announce(worker: Worker, text: str, **fields: Any) -> Envelope:
    """As a sidecar does it."""
    made = fields.pop("id", text.replace(" ", "-") * 4)
    said = Envelope(made, fields.pop("to", EVERYBODY), text_message(made, text), NOW, **fields)
    await worker.bus.publish(subjects.outbox(worker.uid), said.encode(), id=made)
    return said


async def texts(desk: Desk, uid: str, **page: int) -> list[str]:
    await desk.folded()
    return [one.text for one in await desk.outbox.of(uid, **page)]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_person_and_a_worker_announce_and_each_has_an_outbox_of_its_own(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        said = Content.given("look", [FILE, DATA], subject="Report", thread="t1")
        mine = await desk.outbox.announce(maria.uid, said)
        await announce(bob, "the build is red")

        assert await texts(desk, bob.uid) == ["the build is red"]
        (shown,) = [one.as_json() for one in await desk.outbox.of(maria.uid)]
        assert shown == mine.as_json()
        assert shown["parts"] == [{"text": "look"}, FILE, DATA]
        assert (shown["subject"], shown["thread"]) == ("Report", "t1")
        assert shown["from"]["nick"] == "maria"
        assert shown["at"].endswith("Z")


async def test_one_key_is_one_announcement(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria = await desk.person()
        first = await desk.outbox.announce(maria.uid, "once", key="k")
        again = await desk.outbox.announce(maria.uid, "once", key="k")

        assert again.id == first.id
        assert await texts(desk, maria.uid) == ["once"]
        with pytest.raises(InvalidInput):
            await desk.outbox.announce(maria.uid, " ")
        with pytest.raises(NotFound):
            await desk.outbox.announce("0" * 32, "who?")


async def test_an_outbox_is_read_page_by_page_in_both_directions(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        bob = await desk.worker("bob")
        for number in range(5):
            await announce(bob, f"number {number}")
        await desk.folded()
        newest = await desk.outbox.of(bob.uid, limit=2)

        assert [one.text for one in newest] == ["number 3", "number 4"]
        earlier = await texts(desk, bob.uid, limit=2, before=newest[0].seq)
        assert earlier == ["number 1", "number 2"]
        assert await texts(desk, bob.uid, limit=2, after=0) == ["number 0", "number 1"]


async def test_what_is_no_announcement_does_not_count(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        bob, carol = await desk.worker("bob"), await desk.worker("carol")
        await announce(bob, "to one", to=carol.uid)
        await bob.bus.publish(subjects.outbox(bob.uid), b"[1]", id="x" * 32)
        await bob.bus.publish(subjects.outbox(bob.uid), b"{}", id="y" * 32)
        real = await announce(bob, "to all")
        await announce(bob, "the id again", id=real.id)
        # Another agent may use the same id: ids are the senders' own.
        again = Envelope(real.id, EVERYBODY, text_message(real.id, "mine"), NOW)
        await carol.bus.publish(subjects.outbox(carol.uid), again.encode())

        assert await texts(desk, bob.uid) == ["to all"]
        assert await texts(desk, carol.uid) == ["mine"]


async def test_a_reader_who_comes_back_misses_nothing_and_reads_nothing_twice(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        bob = await desk.worker("bob")

        def stream(after: int) -> Any:
            return streamed(announcements(desk.changes, desk.outbox, bob.uid), after).body_iterator

        async def heard(after: int, number: int) -> list[tuple[int, str]]:
            found: list[tuple[int, str]] = []
            async with asyncio.timeout(SECONDS), aclosing(stream(after)) as events:
                async for event in events:
                    if event.startswith("id: "):
                        said = json.loads(event.partition("data: ")[2])
                        found.append((said["seq"], said["text"]))
                    if len(found) == number:
                        return found
            return found

        await announce(bob, "a a")
        reading = asyncio.create_task(heard(0, 2))
        await announce(bob, "b b")
        first = await reading
        await announce(bob, "c c")
        rest = asyncio.create_task(heard(first[-1][0], 2))
        await announce(bob, "d d")
        assert [text for _, text in [*first, *await rest]] == ["a a", "b b", "c c", "d d"]


async def test_announcements_are_given_up_as_the_user_says(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        bob = await desk.worker("bob", ("alpha",))
        await announce(bob, "old news")
        await desk.folded()

        def pruner(days: float, *projects: str, **kinds: str) -> Pruner:
            rule = keeping(kinds, projects)
            return Pruner(desk.database, rule, clock=lambda: time.time() + days * DAY)

        assert await pruner(29, announcements="30d").due() == []
        assert await pruner(40, "alpha announcements for ever", announcements="30d").prune() == []
        (gone,) = await pruner(31, announcements="30d").prune()
        assert (gone.kind, gone.project, gone.number) == ("announcements", "alpha", 1)
        assert await texts(desk, bob.uid) == []


async def test_what_was_given_up_leaves_the_log_and_what_is_kept_stays(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        bob = await desk.worker("bob")
        await announce(bob, "kept news")
        await bob.bus.publish(subjects.outbox(bob.uid), b"[]", id="x" * 32)
        await desk.folded()
        records = [record async for record in desk.admin.replay("OUTBOX")]
        judged = await desk.database.read(
            lambda store: [outbox.OVER["OUTBOX"].judge(store, record, 0) for record in records]
        )
        assert judged == [False, True]


async def test_everybody_may_read_a_file_that_its_reader_announces(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        bob, carol = await desk.worker("bob"), await desk.worker("carol")
        blob, secret = "a" * 64, "b" * 64
        for name, reader in ((blob, bob.uid), (secret, "f" * 32)):
            row = BlobRow(name, 5, "text/plain", NOW, NOW)
            await desk.database.write(lambda store, r=row, w=reader: store.blobs.store_blob(r, w))
        parts = [{"url": f"{PREFIX}{name}"} for name in (blob, secret)]
        message = Content.given("", parts).message("m" * 32)
        said = Envelope("m" * 32, EVERYBODY, message, NOW)
        await bob.bus.publish(subjects.outbox(bob.uid), said.encode(), id="m" * 32)
        await desk.folded()
        records = [record async for record in desk.admin.replay("OUTBOX")]
        rules = {"OUTBOX": blob_rules.RULES["OUTBOX"]}
        await desk.database.write(lambda store: store.set_cursor("OUTBOX", 0))
        await desk.database.write(lambda store: fold(store, rules, "OUTBOX", records))

        readable = await desk.database.read(
            lambda store: [
                store.blobs.readable(name, carol.uid) is not None for name in (blob, secret)
            ]
        )
        assert readable == [True, False]
