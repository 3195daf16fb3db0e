"""Shortening the log, and building the projection again from a copy and what is left."""

from __future__ import annotations

import gzip
import json
import sqlite3
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from postroom.errors import EnvironmentFault, InvalidInput, NotFound, StateUnwritable
from postroom.mail.projection import OVER, RULES
from postroom.projection.rebuild import catch_up, rebuild
from postroom.projection.retention import Retention
from postroom.protocol.receipts import State
from postroom.store import copying, snapshot
from postroom.store.database import Database, Store
from postroom.store.migrate import migrate
from postroom.store.schema import PROJECTION, agents
from tests.mail.desk import BACKENDS, SECONDS, Desk, running, running_desk

pytestmark = pytest.mark.anyio


def tables(store: Store) -> dict[str, list[tuple]]:
    return {
        table.name: [
            tuple(row) for row in store.session.rows(select(table).order_by(*table.primary_key))
        ]
        for table in PROJECTION
    }


def later() -> float:
    """A time at which everything has been final for long."""
    return time.time() + 1e6


def retention(desk: Desk, folder: Path) -> Retention:
    return Retention(desk.admin, desk.database, folder, OVER, org="default", clock=later)


async def seen_and_open(desk: Desk) -> tuple[int, int]:
    """Sequences of a message that is final and of one that is not; each has a receipt."""
    maria, bob = await desk.person(), await desk.worker("bob")
    done = await desk.office.send(maria.uid, "@bob", "done", expects_reply=False)
    await bob.receipt(done, State.SEEN)
    held = await desk.office.send(maria.uid, "@bob", "held")
    await bob.receipt(held, State.DELIVERED)
    await desk.office.wait(held.id, State.DELIVERED, SECONDS)
    await desk.folded()
    return done.seq, held.seq


async def left(desk: Desk, stream: str) -> list[int]:
    return [record.sequence async for record in desk.admin.replay(stream)]


@pytest.mark.requirement("mail-retention-covered")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_only_records_of_final_messages_are_deleted(tmp_path: Path, backend: str):
    async with running_desk(tmp_path, backend) as desk:
        done, held = await seen_and_open(desk)
        assert await retention(desk, tmp_path / "copy").shorten() == 2
        assert await left(desk, "INBOX") == [held]
        assert await left(desk, "RECEIPTS") == [2]
        with pytest.raises(NotFound):
            await desk.admin.get("INBOX", done)


@pytest.mark.requirement("mail-retention-covered")
async def test_what_became_final_a_moment_ago_is_kept(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        await seen_and_open(desk)
        assert (
            await Retention(
                desk.admin, desk.database, tmp_path / "copy", OVER, org="default"
            ).shorten()
            == 0
        )


@pytest.mark.requirement("mail-retention-covered")
async def test_without_room_for_a_copy_nothing_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with running_desk(tmp_path) as desk:
        await seen_and_open(desk)

        def full(*_: object) -> Path:
            raise StateUnwritable("the disk is full")

        monkeypatch.setattr(snapshot, "verify", full)
        with pytest.raises(StateUnwritable):
            await retention(desk, tmp_path / "copy").shorten()
        assert len(await left(desk, "INBOX")) == 2


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_copy_and_the_log_behind_it_give_the_same_rows(tmp_path: Path, backend: str):
    async with running_desk(tmp_path, backend) as desk, Database(tmp_path / "b.db") as other:
        await seen_and_open(desk)
        await retention(desk, tmp_path / "copy").shorten()
        maria, bob = await desk.directory.resolve("@maria"), await desk.directory.resolve("@bob")
        await desk.office.send(maria.uid, bob.uid, "after the copy")
        await desk.office.post(maria.uid, "main", "morning")
        await desk.folded()

        await migrate(other)
        await rebuild(other, desk.admin, RULES, tmp_path / "copy" / snapshot.NAME)

        assert await other.read(tables) == await desk.database.read(tables)


@pytest.mark.requirement("mail-rebuild-equal")
async def test_rebuilding_in_place_keeps_agents_and_rows_and_the_fold_goes_on(tmp_path: Path):
    async with running_desk(tmp_path, fold=False) as desk:
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            await seen_and_open(desk)
            await retention(desk, tmp_path / "copy").shorten()
        before = await desk.database.read(tables)
        everyone = await desk.database.read(lambda store: store.session.rows(select(agents)))
        await rebuild(desk.database, desk.admin, RULES, tmp_path / "copy" / snapshot.NAME)
        assert await desk.database.read(tables) == before
        assert (
            await desk.database.read(lambda store: store.session.rows(select(agents))) == everyone
        )


async def test_a_damaged_copy_changes_nothing(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        await seen_and_open(desk)
        before = await desk.database.read(tables)
        (tmp_path / "bad.db").write_bytes(b"junk" * 1000)
        with pytest.raises(EnvironmentFault):
            await rebuild(desk.database, desk.admin, RULES, tmp_path / "bad.db")
        assert await desk.database.read(tables) == before


def take(desk: Desk, folder: Path) -> Path:
    copying.take(desk.database, folder / snapshot.NAME, "default")
    return folder / snapshot.NAME


async def test_a_snapshot_that_cannot_be_read_again_does_not_replace_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with running_desk(tmp_path) as desk:
        await seen_and_open(desk)
        kept = take(desk, tmp_path / "copy")
        good = kept.read_bytes()

        def damaged(_: Path) -> None:
            raise EnvironmentFault("damaged")

        monkeypatch.setattr(snapshot, "verify", damaged)
        with pytest.raises(EnvironmentFault):
            take(desk, tmp_path / "copy")
        assert kept.read_bytes() == good
        assert [path.name for path in kept.parent.iterdir()] == [kept.name]


@pytest.mark.parametrize("field", ["revision", "format"])
async def test_a_snapshot_of_a_newer_version_is_refused(tmp_path: Path, field: str):
    async with running_desk(tmp_path) as desk:
        kept = take(desk, tmp_path)
        header, _, rest = gzip.decompress(kept.read_bytes()).partition(b"\n")
        said = json.loads(header) | {field: 9999 if field == "format" else "9999"}
        kept.write_bytes(gzip.compress(json.dumps(said).encode() + b"\n" + rest))
        with pytest.raises(EnvironmentFault, match="9999"):
            copying.verify(kept)


async def test_every_damaged_byte_of_a_snapshot_is_found(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        await seen_and_open(desk)
        kept = take(desk, tmp_path)
        whole = gzip.decompress(kept.read_bytes())
    bad = tmp_path / "bad"
    lines = whole.splitlines(keepends=True)
    for number in range(1, len(lines)):
        damaged = bytearray(whole)
        damaged[sum(map(len, lines[:number])) + 3] ^= 1
        for content in (bytes(damaged), b"".join(lines[:number]), b"".join(lines[:number] * 2)):
            bad.write_bytes(gzip.compress(content, 1))
            with pytest.raises(EnvironmentFault):
                copying.verify(bad)
    copying.verify(kept)


async def test_a_snapshot_is_of_one_moment_while_others_write(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        for number in range(3):
            await desk.office.send(maria.uid, bob.uid, f"{number}")
        await desk.folded()
        with desk.database.aside() as store:
            before = copying.cursors(store)["INBOX"]
            await desk.office.send(maria.uid, bob.uid, "while it is read")
            await desk.folded()
            assert copying.cursors(store)["INBOX"] == before
            assert len(tables(store)["messages"]) == 3


@pytest.mark.requirement("mail-rebuild-equal")
async def test_a_projection_older_than_its_snapshot_takes_what_left_the_log_from_it(tmp_path: Path):
    path = tmp_path / "older.db"
    async with running_desk(tmp_path) as desk:
        assert desk.database.path is not None
        with sqlite3.connect(desk.database.path) as connection:
            connection.execute("VACUUM INTO ?", (str(path),))
        connection.close()
        await seen_and_open(desk)
        await retention(desk, tmp_path / "copy").shorten()
        before = await desk.database.read(tables)
        async with Database(path) as older:
            assert await catch_up(older, copying.last(tmp_path / "copy"))
            assert await older.read(tables) == before
            assert not await catch_up(older, copying.last(tmp_path / "copy"))


async def test_a_database_in_memory_is_not_shortened(tmp_path: Path):
    async with running_desk(tmp_path) as desk, Database() as memory:
        with pytest.raises(InvalidInput):
            await Retention(desk.admin, memory, tmp_path, OVER, org="default").shorten()


@pytest.mark.requirement("mail-retention-covered")
@pytest.mark.requirement("mend-letters-shared")
async def test_one_run_deletes_all_that_is_over_however_much_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.projection.retention.SCAN", 2)
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        open_one = await desk.office.send(maria.uid, "@bob", "open")
        for number in range(9):
            done = await desk.office.send(maria.uid, "@bob", f"{number}", expects_reply=False)
            await bob.receipt(done, State.SEEN)
            await desk.office.wait(done.id, State.SEEN, SECONDS)
        await desk.folded()

        await retention(desk, tmp_path / "copy").shorten()

        assert await left(desk, "INBOX") == [1]
        assert await left(desk, "RECEIPTS") == []
        assert open_one.state is State.ACCEPTED


async def test_what_stays_open_at_the_front_does_not_hide_what_is_final_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.projection.retention.SCAN", 1)
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        await desk.office.send(maria.uid, "@bob", "open")
        done = await desk.office.send(maria.uid, "@bob", "done", expects_reply=False)
        await bob.receipt(done, State.SEEN)
        await desk.office.wait(done.id, State.SEEN, SECONDS)
        await desk.folded()
        await retention(desk, tmp_path / "copy").shorten()
        assert await left(desk, "INBOX") == [1]
