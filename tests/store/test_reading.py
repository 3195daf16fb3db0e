"""Threads, and what readers have put away and read: over pruning, snapshots and rebuilds, on both databases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.store import copying, pruning
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.ports import Ended, Place
from postroom.store.threads import MOST_PARTIES

ANN, BOB, EVE = "a" * 32, "b" * 32, "e" * 32


def message(seq: int, thread: str = "", sender: str = ANN, to: str = BOB) -> MessageRow:
    row = MessageRow(seq, f"{seq:032x}", sender, to, "hello", "{}", 1.0, 1.0, 1.0)
    return replace(row, context_id=thread)


def keep(store: Store, *rows: MessageRow) -> None:
    for row in rows:
        assert store.messages.insert_message(row)


def threads(store: Store, uid: str = ANN) -> list[tuple[str, int, int, int]]:
    found = store.threads.page(uid, 0, 50)
    return [(row.thread, row.first, row.last, row.count) for row in found]


def give_up(store: Store, *seqs: int) -> None:
    chosen = [Ended(seq, f"{seq:032x}", (BOB, ANN), 1.0, 1.0, 1) for seq in seqs]
    pruning.KINDS["messages"].give_up(store, chosen)


@pytest.mark.requirement("mail-threads")
def test_a_thread_counts_the_messages_that_a_party_has_and_keeps(empty_store: Store):
    store = empty_store
    keep(store, message(1, "x"), message(2), message(3, "y", ANN, EVE), message(4, "x", BOB, ANN))
    keep(store, message(5, "x", BOB, EVE))
    assert threads(store) == [("x", 1, 4, 2), ("y", 3, 3, 1)]
    assert threads(store, BOB) == [("x", 1, 5, 3)]
    assert not store.messages.insert_message(message(1, "x"))
    assert threads(store) == [("x", 1, 4, 2), ("y", 3, 3, 1)]
    give_up(store, 4)
    assert threads(store) == [("y", 3, 3, 1), ("x", 1, 1, 1)]
    give_up(store, 1, 3)
    assert (threads(store), threads(store, BOB)) == ([], [("x", 5, 5, 1)])


def test_a_thread_with_oneself_is_one_and_names_a_bounded_number_of_others(empty_store: Store):
    keep(empty_store, message(1, "notes", ANN, ANN))
    for seq in range(2, MOST_PARTIES + 9):
        keep(empty_store, message(seq, "all", ANN, f"{seq:032x}"))
    assert threads(empty_store)[1] == ("notes", 1, 1, 1)
    assert len(empty_store.threads.page(ANN, 0, 1)[0].parties) == MOST_PARTIES


@pytest.mark.anyio
@pytest.mark.requirement("mail-archive-kept")
@pytest.mark.parametrize("place", ["file", "postgres"], indirect=True)
async def test_marks_of_readers_and_threads_survive_a_snapshot_and_a_rebuild(
    place: Place, tmp_path: Path
):
    rows = [message(seq, "x") for seq in range(1, 5)]

    def archived(store: Store) -> list[int]:
        return [row.seq for row in store.messages.inbox(BOB, unread=False, archived=True, limit=9)]

    async with Database(place) as database:
        await database.write(lambda store: keep(store, *rows))
        await database.write(lambda store: store.reading.archive(BOB, [1, 2], 1.0))
        path = tmp_path / "kept"
        await asyncio.to_thread(copying.take, database, path, "default")
        await database.write(lambda store: store.reading.archive(BOB, [1], 1.0, put=False))
        await database.write(lambda store: store.reading.archive(BOB, [3], 1.0))
        # From a snapshot, which is older than the marks.
        await database.write(lambda store: copying.restore_projection(store, path))
        assert await database.read(archived) == [2, 3]
        assert await database.read(threads) == [("x", 1, 4, 4)]
        # From the log alone.
        await database.write(lambda store: copying.restore_projection(store, None))
        assert await database.read(archived) == []
        await database.write(lambda store: keep(store, *rows))
        assert await database.read(archived) == [2, 3]
        assert await database.read(threads) == [("x", 1, 4, 4)]


def test_the_mark_of_a_message_that_was_given_up_goes_with_it(empty_store: Store):
    keep(empty_store, message(1), message(2))
    assert empty_store.reading.archive(BOB, [1, 2, 3], 1.0) == 2
    give_up(empty_store, 1)
    (row,) = empty_store.session.driver.execute("SELECT count(*) FROM archived").fetchall()
    assert row[0] == 1


@pytest.mark.requirement("mail-archive-kept")
def test_what_a_crash_between_two_files_left_of_an_archive_is_mended(empty_store: Store):
    """The marks are flushed and the projection is not, so a power cut may undo the latter alone."""
    keep(empty_store, message(1), message(2))
    empty_store.reading.archive(BOB, [1], 1.0)
    empty_store.session.driver.execute(
        "UPDATE messages SET archived = CASE seq WHEN 1 THEN false ELSE true END"
    )
    empty_store.reading.marked_again()
    found = empty_store.messages.inbox(BOB, unread=False, archived=True, limit=9)
    assert [row.seq for row in found] == [1]
