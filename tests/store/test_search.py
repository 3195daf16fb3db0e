"""What was said is found by its words: the same on SQLite and PostgreSQL, whatever was said and is asked."""

# Letters that look like others are what is tested.
# ruff: noqa: RUF001

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.store import copying, migrate, pruning
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.ports import Ended, Place
from postroom.store.postgres.connection import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.records import PostRow
from postroom.store.session import Session
from postroom.store.sqlite import ONE_FILE, altering
from tests.postgres import PostgresServer
from tests.store.conftest import make_tables

ANN, BOB, EVE = "a" * 32, "b" * 32, "e" * 32


def message(seq: int, text: str, **more: object) -> MessageRow:
    row = MessageRow(seq, f"{seq:032x}", ANN, BOB, text, "{}", 1.0, 1.0, 1.0)
    return replace(row, **more)


def keep(store: Store, *texts: str) -> None:
    for seq, text in enumerate(texts, 1):
        assert store.messages.insert_message(message(seq, text))


def found(store: Store, text: str, **more: object) -> list[int]:
    rows = store.messages.search(words=text.split(), limit=50, **more)  # ty: ignore[invalid-argument-type]
    return [row.seq for row in rows]


def entries(store: Store, table: str = "message_words") -> int:
    (row,) = store.session.driver.execute(f"SELECT count(*) FROM {table}").fetchall()
    return row[0]


@pytest.mark.requirement("mail-search-letters")
@pytest.mark.parametrize(
    "text, asked",
    [
        ("The Invoice is WRONG", "invoice wrong"),
        ("unbelievable", "believ"),
        ("Crème brûlée à la carte", "creme BRULEE"),
        ("creme", "Crème"),
        ("Straße nach Ærøskøbing", "STRASSE"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("İstanbul", "istanbul"),
        ("ﬁnd the ｆｕｌｌ width", "find full"),
        ("会議は東京で行います", "東京"),
        ("会議は東京で行います", "京"),
        ("การประชุมที่กรุงเทพ", "ชุม"),
        ("مرحبا بالعالم", "عا"),
        ("fix CI now", "ci"),
        ("(CI) failed", "ci"),
        ("written in C++", "c+"),
        ("100% sure", "100%"),
        ("a_b %c 'd' \"e\"", "a_b %c 'd' \"e\""),
        ("🎉🎊 done", "🎉"),
        ("tabs\tand\nlines", "tabs and lines"),
        ("ab" * 60_000 + " end", "abab"),
    ],
)
def test_a_word_is_found_whatever_its_script_its_capitals_and_its_accents(
    empty_store: Store, text: str, asked: str
):
    keep(empty_store, "something else", text)
    assert found(empty_store, asked) == [2]


@pytest.mark.parametrize(
    "text, asked",
    [
        ("abcd bcde", "abcde"),  # it has all pieces of it
        ("social", "ci"),  # two letters stand at the beginning of a word
        ("a1b", "a_b"),
        ("hundred", "100%"),
        ("invoice", "invoice paid"),
    ],
)
def test_what_does_not_have_each_word_is_not_found(empty_store: Store, text: str, asked: str):
    keep(empty_store, text)
    assert found(empty_store, asked) == []


@pytest.mark.parametrize(
    "asked",
    ['"', "'", "a'b", '"a" OR "b"', "NOT x", "a*", "^a", "-a", "a:b", "(", "NEAR(a b)", "\\", "%", "_",
     "!", "<->", "&", "|", "\ue100ab", "\ue101p", "\u0301", "¨", "words", "\x01", "\x1f", "𝕏" * 300],
)  # fmt: skip
def test_no_sign_in_a_search_means_anything(empty_store: Store, asked: str):
    keep(empty_store, f"x {asked} y", "nothing of it")
    assert 1 in found(empty_store, asked)
    assert [row.seq for row in empty_store.messages.search(words=[asked], limit=5)] >= [1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60))
def test_each_word_of_any_text_finds_it(empty_store: Store, text: str):
    seq = 1 + max(found(empty_store, ""), default=0)
    assert empty_store.messages.insert_message(message(seq, text))
    for word in text.split():
        assert seq in found(empty_store, word, before=seq + 1)


def test_a_search_keeps_to_its_thread_and_its_parties_and_goes_on_page_by_page(empty_store: Store):
    store = empty_store
    for seq in range(1, 9):
        thread, sender = ("odd" if seq % 2 else ""), (EVE if seq > 6 else ANN)
        store.messages.insert_message(message(seq, "word", context_id=thread, sender=sender))
    assert found(store, "word", thread="odd") == [7, 5, 3, 1]
    assert found(store, "", parties=[EVE]) == [8, 7]
    assert found(store, "word", parties=[EVE, BOB], thread="odd") == [7]
    assert found(store, "word", parties=[EVE, ANN]) == []
    assert found(store, "", parties=[ANN], before=4) == [3, 2, 1]
    assert found(store, "") == [8, 7, 6, 5, 4, 3, 2, 1]
    pages: list[Sequence[int]] = []
    while rows := store.messages.search(
        words=["word"], limit=3, before=pages[-1][-1] if pages else 0
    ):
        pages.append([row.seq for row in rows])
    assert pages == [[8, 7, 6], [5, 4, 3], [2, 1]]


def test_what_lies_far_back_is_found_behind_much_that_has_only_its_pieces(empty_store: Store):
    store = empty_store
    store.messages.insert_message(message(1, "abcde"))
    for seq in range(2, 1_500):
        store.messages.insert_message(message(seq, "abcd bcde"))
    assert found(store, "abcde") == [1]


def test_the_index_of_what_was_given_up_is_given_up_too(empty_store: Store):
    store = empty_store
    keep(store, "one", "two")
    store.records.insert_post(PostRow(1, "p", "main", ANN, "three", "{}", 1.0))
    ended = Ended(1, f"{1:032x}", (BOB, ANN), 1.0, 1.0, 1)
    pruning.KINDS["messages"].give_up(store, [ended])
    pruning.KINDS["posts"].give_up(store, [Ended(1, "p", (), 1.0, 1.0, 1)])
    assert (entries(store), entries(store, "post_words")) == (1, 0)
    assert found(store, "one") == []
    copying.restore_projection(store, None)
    assert entries(store) == 0


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["file", "postgres"], indirect=True)
async def test_what_a_snapshot_brings_back_is_found(place: Place, tmp_path: Path):
    async with Database(place) as database:
        await database.write(lambda store: keep(store, "the invoice"))
        path = tmp_path / "kept"
        await asyncio.to_thread(copying.take, database, path, "default")
        await database.write(lambda store: copying.restore_projection(store, path))
        assert await database.read(lambda store: found(store, "invoice")) == [1]
        assert await database.read(entries) == 1


COLUMNS = (
    "seq, id, sender, recipient, text, message, context_id, expects_reply, reply_to, requeue_of,\
 sent_at, stored_at, expires_at, state, reason, final, updated_at, requests, subject, task"
)
ROW = (
    f"1, 'm', '{ANN}', '{BOB}', 'The Invoice', '{{}}', '', false, '', '', 1, 1, 0, 'seen', '', true, 1,\
 false, 'Of May', ''"
)
OLD = f"INSERT INTO messages ({COLUMNS}) VALUES ({ROW})"


@pytest.mark.requirement("mail-search-letters")
def test_what_was_said_before_the_index_is_found_behind_it(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as driver:
        altering(driver, lambda connection: migrate.upgrade(connection, "0021"))
        driver.execute(OLD)
        altering(driver, migrate.upgrade)
        assert found(Store(Session(ONE_FILE, driver)), "invoice may") == [1]


@pytest.mark.anyio
@pytest.mark.requirement("mail-search-letters")
async def test_what_was_said_before_the_index_is_found_behind_it_on_postgresql(
    postgres: PostgresServer,
):
    place = PostgresPlace(Address.parse(postgres.new_database()), "default")
    make_tables(place)
    before = f"""DROP TABLE message_words, post_words, given_up, threads, archived, feed_marks;
        DROP INDEX ix_messages_inbox, ix_messages_open_thread;
        ALTER TABLE messages DROP COLUMN signature, DROP COLUMN archived;
        UPDATE alembic_version SET version_num = '0021'; {OLD}"""
    place.alter("projection", lambda connection: connection.exec_driver_sql(before))
    async with Database(place) as database:
        await migrate.migrate(database)
        assert await database.read(lambda store: found(store, "invoice may")) == [1]
