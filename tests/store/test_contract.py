"""What every database promises to those above it: the same on SQLite in files and in memory, and on PostgreSQL."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from string import ascii_letters

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.errors import Conflict, InvalidInput, StateUnwritable
from postroom.mail.projection import RULES as MAIL_RULES
from postroom.projection.rules import fold
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.migrate import migrate
from postroom.store.ports import Place, TaskRow
from postroom.store.records import DeadLetterRow
from postroom.store.surreal.place import TasksElsewhere
from postroom.store.workers import WorkerRecord
from tests.mail.log import envelope, inbox

pytestmark = pytest.mark.anyio

BOB = Agent("b" * 32, "default", "bob", "worker", 1.0)
ANN = Agent("a" * 32, "default", "ann", "worker", 1.0)


@pytest.fixture
async def database(place: Place) -> AsyncGenerator[Database]:
    async with Database(place) as opened:
        yield opened


def message(seq: int, **more: object) -> MessageRow:
    row = MessageRow(seq, f"{seq:032x}", ANN.uid, BOB.uid, "hello", "{}", 1.0, 1.0, 1.0)
    return replace(row, **more)


def keep(*rows: MessageRow):
    def work(store: Store) -> None:
        for row in rows:
            assert store.messages.insert_message(row)

    return work


def kept(store: Store) -> list[int]:
    return [row.seq for row in store.messages.to_past(BOB.uid, 0, 500)]


@pytest.mark.requirement("store-contract-kept")
async def test_a_batch_and_its_cursors_are_stored_together_or_not_at_all(database: Database):
    def half(store: Store) -> None:
        keep(message(1))(store)
        store.records.cursors.set("INBOX", 1)
        store.tasks.cursors.set("INBOX", 1)
        raise LookupError

    with pytest.raises(LookupError):
        await database.fold(half)

    assert await database.read(kept) == []
    assert await database.read(lambda store: store.records.cursors.get("INBOX")) == 0
    assert await database.read(lambda store: store.tasks.cursors.get("INBOX")) == 0


async def test_a_write_is_seen_by_every_read_after_it(database: Database):
    await database.write(keep(message(1)))
    await database.fold(keep(message(2)))
    assert await database.read(kept) == [1, 2]
    assert await database.point(kept) == [1, 2]


async def test_writes_from_many_tasks_are_all_kept(database: Database):
    await asyncio.gather(*(database.write(keep(message(seq))) for seq in range(1, 101)))
    assert await database.read(kept) == list(range(1, 101))


async def test_the_cursors_of_the_projections_are_apart(database: Database):
    def work(store: Store) -> None:
        store.records.cursors.set("INBOX", 7)
        store.tasks.cursors.set("INBOX", 5)

    await database.fold(work)
    assert await database.read(lambda store: store.records.cursors.get("INBOX")) == 7
    assert await database.read(lambda store: store.tasks.cursors.get("INBOX")) == 5


@pytest.mark.parametrize("place", ["file", "postgres", "surrealdb"], indirect=True)
async def test_a_read_sees_one_moment_whatever_is_written_meanwhile(database: Database):
    began, goes_on = threading.Event(), threading.Event()

    def twice(store: Store) -> tuple[list[int], list[int]]:
        before = kept(store)
        began.set()
        assert goes_on.wait(10)
        return before, kept(store)

    reading = asyncio.create_task(database.read(twice))
    await asyncio.to_thread(began.wait, 10)
    await database.write(keep(message(1)))
    goes_on.set()
    assert await reading == ([], [])


async def test_a_view_of_a_thread_is_one_moment_too(database: Database):
    if database.place.shared:
        with pytest.raises(InvalidInput), database.aside():
            pass
        return
    with database.aside() as store:
        assert kept(store) == []
        await database.write(keep(message(1)))
        assert kept(store) == []


@pytest.mark.parametrize("place", ["file", "postgres", "surrealdb"], indirect=True)
async def test_a_read_cannot_write(database: Database):
    with pytest.raises(StateUnwritable):
        await database.read(keep(message(1)))
    assert await database.read(kept) == []


@pytest.mark.requirement("store-contract-kept")
async def test_what_must_be_unique_is_a_conflict_and_changes_nothing(database: Database):
    await database.write(lambda store: store.agents.add_agent(BOB, "bob", b"secret"))

    def second(store: Store) -> None:
        keep(message(1))(store)
        store.agents.add_agent(replace(BOB, uid=ANN.uid), "other", b"secret")

    with pytest.raises(Conflict):
        await database.write(second)
    assert await database.read(kept) == []
    assert await database.read(lambda store: store.agents.agent_by_uid(ANN.uid)) is None
    await database.write(lambda store: store.agents.retire_agent(BOB.uid, 2.0))
    await database.write(second)  # the name is free again


async def test_a_row_about_nobody_is_a_conflict(database: Database):
    worker = WorkerRecord(ANN.uid, "main", "", "", "", "running", "x", 1.0)
    with pytest.raises(Conflict):
        await database.write(lambda store: store.workers.add_worker(worker))


async def test_a_record_that_is_stored_already_has_no_effect(database: Database):
    await database.fold(keep(message(1)))
    again = message(1, text="other")
    assert not await database.fold(lambda store: store.messages.insert_message(again))
    same = message(2, id=message(1).id)
    assert not await database.fold(lambda store: store.messages.insert_message(same))
    assert await database.read(lambda store: store.messages.message_at(1)) == message(1)


async def test_numbers_bytes_and_long_texts_come_back_as_they_were(database: Database):
    row = message(2**53, text="ü" * 300_000, sent_at=1e9 + 1 / 3, expires_at=-0.5)
    letter = DeadLetterRow(
        2**62, "origin", "subject", "a", "b", "m", bytes(range(256)), "why", 2**40, 0.1
    )

    def store_both(store: Store) -> None:
        keep(row)(store)
        assert store.records.insert_dead_letter(letter)

    await database.fold(store_both)
    assert await database.read(lambda store: store.messages.message_at(2**53)) == row
    assert await database.read(lambda store: store.records.dead_letter(2**62)) == letter


async def test_names_and_ids_are_sorted_by_their_characters_and_not_by_a_language(
    database: Database,
):
    names = ["b-a", "ba", "b_a", "B", "a", "é", "z"]

    def work(store: Store) -> None:
        for name in names:
            uid = name.encode().hex().ljust(32, "0")
            store.agents.add_agent(Agent(uid, "default", name, "worker", 1.0), name, b"")

    await database.write(work)
    found = await database.read(lambda store: store.agents.all_agents("default"))
    assert [agent.nick for agent in found] == sorted(names)


async def test_a_beginning_of_an_id_finds_all_that_begin_with_it_and_no_other(database: Database):
    ids = ["ab" + "f" * 30, "ab" + "0" * 30, "ac" + "0" * 30, "aa" + "f" * 30]
    await database.fold(keep(*(message(seq, id=one) for seq, one in enumerate(ids, 1))))
    found = await database.read(lambda store: store.messages.ids_by_prefix("ab", 9))
    assert found == [ids[1], ids[0]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8")))
async def test_any_text_can_be_stored_and_a_null_character_becomes_a_mark(
    database: Database, text: str
):
    def there_and_back(store: Store) -> MessageRow | None:
        seq = 1 + len(kept(store))
        keep(message(seq, text=text, context_id=text, reason=text))(store)
        return store.messages.message_at(seq)

    row = await database.fold(there_and_back)
    assert row is not None
    stored = text.replace("\0", "\ufffd")
    assert (row.text, row.context_id, row.reason) == (stored, stored, stored)


@pytest.mark.requirement("mail-deadletter-moved")
def test_what_a_hostile_sender_puts_into_names_is_folded_like_any_message(empty_store: Store):
    """An index of PostgreSQL takes no long text, and a text no U+0000."""
    long = "".join(
        random.Random(1).choices(ascii_letters, k=9000)
    )  # which no compression makes short
    stream = [
        inbox(1, envelope("m1", reply_to=long, requeue_of=long)),
        inbox(2, envelope("m2", to=long), to=long),
        inbox(3, envelope("m3", reply_to="m\0")),
    ]
    for _, record in stream:
        assert fold(empty_store, MAIL_RULES, "INBOX", [record]).ignored == 0
    rows = [empty_store.messages.message_at(seq) for seq in (1, 2, 3)]
    assert [row and (row.reply_to, row.requeue_of) for row in rows] == [("", "")] * 3
    assert [row and row.state for row in rows] == ["accepted", "dead", "accepted"]


async def test_tasks_are_asked_for_without_any_other_table(database: Database):
    """So that another store can keep them."""
    other = {"messages", "agents", "alerts", "workers", "blobs", "memberships"}
    said: list[str] = []

    class Listening:
        def __init__(self, driver: object) -> None:
            self.driver = driver

        def execute(self, sql: str, *values: object):
            said.append(sql)
            return self.driver.execute(sql, *values)  # ty: ignore[missing-attribute]

    task = TaskRow("t", BOB.uid, ANN.uid, "m", 1, "c", "text", 1.0, 1.0)

    def ask(store: Store) -> None:
        driver = store.session.driver
        store.session.driver = Listening(driver)  # ty: ignore[invalid-assignment]
        try:
            for question in QUESTIONS:
                question(store.tasks, task)
        finally:
            store.session.driver = driver

    await database.fold(ask)
    if isinstance(database.place, TasksElsewhere):
        assert said == []  # not even one of its own
        return
    assert len(said) >= len(QUESTIONS)
    for sql in said:
        words = set(sql.replace(".", " ").replace("(", " ").split())
        assert not words & other, sql


QUESTIONS = (
    lambda tasks, task: tasks.insert_task(task),
    lambda tasks, task: tasks.task_by_id(task.id),
    lambda tasks, task: tasks.tasks_by_ids([task.id]),
    lambda tasks, _: tasks.tasks_by_prefix("ab"),
    lambda tasks, task: tasks.events_of(task.id),
    lambda tasks, _: tasks.events_at([1]),
    lambda tasks, task: tasks.list_tasks(worker=task.worker, limit=5),
    lambda tasks, task: tasks.updated(worker=task.worker, past=(1.0, "x"), limit=5),
    lambda tasks, task: tasks.open_tasks(task.worker),
    lambda tasks, task: tasks.queue(task.worker),
    lambda tasks, _: tasks.counts(),
    lambda tasks, _: tasks.states(),
    lambda tasks, _: tasks.current(),
    lambda tasks, _: tasks.interrupted(),
    lambda tasks, _: tasks.untaken_tasks(),
    lambda tasks, task: tasks.open_of(task.worker),
    lambda tasks, task: tasks.begun([task.id]),
    lambda tasks, task: tasks.heads_by_ids([task.id]),
    lambda tasks, _: tasks.heads_by_requests([1]),
    lambda tasks, _: tasks.events_past(0, 5),
    lambda tasks, _: tasks.requested_past(0, 5),
    lambda tasks, task: tasks.milestones([task.worker], None, 5, 9),
    lambda tasks, _: tasks.ended(0, 5),
    lambda tasks, task: tasks.progress([task.id]),
    lambda tasks, _: tasks.sizes(),
    lambda tasks, task: tasks.silent([task.worker], 9.0),
    lambda tasks, task: tasks.forget_progress([task.id]),
    lambda tasks, task: tasks.forget([task.id]),
    lambda tasks, _: tasks.cursors.set("TASKS", 1),
)


async def test_tables_are_made_once_and_keep_what_is_in_them(database: Database):
    await database.write(keep(message(1)))
    await migrate(database)
    assert await database.read(kept) == [1]
