"""The running fold: what it does after a crash, at a gap, with a stranger's records."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import select

from postroom.bus.port import Message
from postroom.errors import BusDisconnected, EnvironmentFault, StateUnwritable
from postroom.mail import outbox, projection
from postroom.mail.clerk import Clerk
from postroom.mail.projection import OVER
from postroom.projection.rebuild import rebuild
from postroom.projection.retention import Retention
from postroom.projection.rules import together
from postroom.protocol.alerts import Alert
from postroom.protocol.receipts import State
from postroom.store import snapshot
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


@pytest.mark.requirement("mail-offline-waits")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_message_to_nobody_is_dead_by_a_receipt_in_the_log(tmp_path: Path, backend: str):
    async with running_desk(tmp_path, backend) as desk:
        bob = await desk.worker("bob")
        sent = await bob.send("0" * 32)
        dead = await desk.mail(sent.id, State.DEAD)
        assert (dead.state, dead.reason) == (State.DEAD, "no such recipient")
        record = await desk.admin.get("RECEIPTS", 1)
        assert record.subject == f"worker.{bob.uid}.receipts.postroom"


@pytest.mark.requirement("mail-offline-waits")
async def test_what_waits_for_an_agent_that_is_retired_dies(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        await desk.directory.retire(bob.uid)
        await desk.clerk.sweep()
        dead = await desk.mail(sent.id, State.DEAD)
        assert (dead.state, dead.reason) == (State.DEAD, "recipient retired")


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_junk_in_an_inbox_is_dead_and_what_follows_is_folded(tmp_path: Path, backend: str):
    async with running_desk(tmp_path, backend) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        await bob.store(maria.uid, b"\x00junk")
        sent = await bob.send(maria.uid)
        assert (await desk.mail(sent.id, State.ACCEPTED)).state is State.ACCEPTED
        states = [(mail.id, mail.state) for mail in await desk.all_mail()]
        assert states[0] == ("malformed:1", State.DEAD)


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_record_that_no_rule_foresaw_is_passed_over_told_and_kept_for_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (rule,) = projection.RULES["INBOX"]

    def stumble(store: Store, record: Message) -> list:
        if b"poison" in record.payload:
            raise ZeroDivisionError
        return [*rule(store, record)]

    monkeypatch.setitem(projection.RULES, "INBOX", (stumble,))
    async with running_desk(tmp_path, fold=False) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        for body in ("before", "poison", "after"):
            await bob.send(maria.uid, body)
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            await desk.folded()
            (alert,) = await desk.alerts.standing()
            keeping = Retention(
                desk.admin, desk.database, tmp_path / "copy", OVER, org="default", keep=-1e9
            )
            await keeping.shorten()
        texts = [mail.text for mail in await desk.all_mail()]
        assert texts == ["before", "after"]
        assert desk.fold.statistics.poisoned == 1
        assert (alert.row.kind, alert.row.about) == ("record-passed-over", "INBOX/2")
        assert "postroom admin rebuild" in alert.row.text
        assert await desk.database.read(lambda store: store.records.passed_over("INBOX")) == [2]

        kept = tmp_path / "copy" / snapshot.NAME
        rules = together(projection.RULES, outbox.RULES)
        await rebuild(desk.database, desk.admin, rules, kept)  # by rules that are no better
        assert await desk.database.read(lambda store: store.records.passed_over("INBOX")) == [2]
        await rebuild(desk.database, desk.admin, rules, None)
        assert await desk.database.read(lambda store: store.records.passed_over("INBOX")) == [2]

        better = together({**projection.RULES, "INBOX": (rule,)}, outbox.RULES)
        await rebuild(desk.database, desk.admin, better, kept)
        texts = [mail.text for mail in await desk.all_mail()]
        assert texts == ["before", "poison", "after"]
        assert await desk.database.read(lambda store: store.records.passed_over("INBOX")) == []
        assert await desk.database.read(lambda store: store.cursor("INBOX")) == 3


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_a_crash_left_between_commit_and_receipt_is_done_after_the_restart(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend, fold=False) as desk:
        bob = await desk.worker("bob")
        sent = await bob.send("0" * 32)

        class Crash(Clerk):
            async def sweep(self) -> None:
                raise EnvironmentFault("x")  # the process ends after the commit

        desk.clerk = Crash(desk.bus, desk.database)
        dying = desk.new_fold()
        with pytest.raises(ExceptionGroup):
            await dying.run()
        assert [mail.state for mail in await desk.all_mail()] == [State.ACCEPTED]

        async with running(desk.fold.run()):
            assert (await desk.mail(sent.id, State.DEAD)).reason == "no such recipient"


@pytest.mark.requirement("mail-rebuild-equal")
async def test_a_receipt_that_could_not_be_stored_is_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.projection.fold.FIRST_RETRY", 0.001)
    async with running_desk(tmp_path, fold=False) as desk:
        report = desk.clerk.report
        failures = iter([BusDisconnected("gone"), StateUnwritable("full")])

        async def unreliable(*args: object) -> None:
            for failure in failures:
                raise failure
            await report(*args)  # ty: ignore[invalid-argument-type]

        monkeypatch.setattr(desk.clerk, "report", unreliable)
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            bob = await desk.worker("bob")
            sent = await bob.send("0" * 32)
            assert (await desk.mail(sent.id, State.DEAD)).state is State.DEAD
        assert desk.fold.statistics.fault == ""


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_was_stored_while_nothing_folded_is_folded_after_the_start(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend, fold=False) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        first = await bob.send(maria.uid)
        async with running(desk.fold.run()):
            await desk.mail(first.id, State.ACCEPTED)
        missed = [await bob.send(maria.uid) for _ in range(3)]
        again = desk.new_fold()
        async with running(again.run()):
            await again.ready(SECONDS)
            live = await bob.send(maria.uid)
            await desk.mail(live.id, State.ACCEPTED)
        ids = [mail.id for mail in await desk.all_mail()]
        assert ids == [first.id, *(each.id for each in missed), live.id]


async def conversation(desk: Desk) -> None:
    """Something of everything."""
    maria, bob = await desk.person(), await desk.worker("bob", ("main",))
    asked = await desk.office.send(maria.uid, "@bob", "how are you?")
    await bob.receipt(asked, State.DELIVERED)
    await bob.send(maria.uid, "well", reply_to=asked.id)
    await bob.send("0" * 32, "to nobody")
    await bob.store(maria.uid, b"junk")
    told = await desk.office.send(maria.uid, "@bob", "fyi", expects_reply=False)
    await bob.receipt(told, State.SEEN)
    await desk.office.post(maria.uid, "main", "morning")
    await bob.bus.publish(f"system.alerts.{bob.uid}", b'{"v":1,"text":"help"}')
    await desk.office.wait(asked.id, State.ANSWERED, SECONDS)
    await desk.folded()


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_empty_database_folded_from_the_same_log_has_the_same_rows(
    tmp_path: Path, backend: str
):
    (tmp_path / "other").mkdir()
    async with (
        running_desk(tmp_path, backend) as desk,
        Database(tmp_path / "other" / "b.db") as other,
    ):
        await conversation(desk)
        await migrate(other)
        names = [column.name for column in agents.columns]
        everyone = await desk.database.read(lambda store: store.session.rows(select(agents)))
        rows = [dict(zip(names, row, strict=True)) for row in everyone]
        await other.write(lambda store: store.session.run_many(agents.insert(), rows))
        again = desk.new_fold(other)
        async with running(again.run()):
            await again.ready(SECONDS)
            assert await other.read(tables) == await desk.database.read(tables)


@pytest.mark.requirement("mail-rebuild-equal")
async def test_folding_the_whole_log_a_second_time_changes_nothing(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        await conversation(desk)
        before = await desk.database.read(tables)
        await desk.database.write(lambda c: c.session.driver.execute("DELETE FROM cursors"))
        again = desk.new_fold()
        async with running(again.run()):
            await again.ready(SECONDS)
            assert await desk.database.read(tables) == before


async def test_a_log_that_is_not_the_databases_own_is_refused(tmp_path: Path):
    async with running_desk(tmp_path, fold=False) as desk:
        await desk.database.write(
            lambda c: c.session.driver.execute(
                "INSERT INTO cursors VALUES ('mail', 'INBOX', 9), ('tasks', 'INBOX', 9)"
            )
        )
        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(desk.fold.run(), SECONDS)
    assert raised.group_contains(EnvironmentFault, match="ahead of the log")


async def test_many_messages_at_once_are_all_folded_in_the_order_of_the_log(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        await asyncio.gather(*(bob.send(maria.uid, str(n)) for n in range(600)))
        await desk.folded()
        assert [mail.seq for mail in await desk.all_mail()] == list(range(1, 601))


@pytest.mark.requirement("mail-rebuild-equal")
async def test_alerts_that_cannot_be_folded_do_not_beget_alerts_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(_store: Store, _record: Message) -> list[object]:
        raise KeyError("unforeseen")

    monkeypatch.setitem(projection.RULES, "ALERTS", (broken,))
    async with running_desk(tmp_path) as desk:
        bob = await desk.worker("bob")
        await desk.alerts.tell(Alert("x", "it is broken", bob.uid))
        for _ in range(10):
            await desk.fold.reached("ALERTS", await desk.admin.last_sequence("ALERTS"), SECONDS)
        assert await desk.admin.last_sequence("ALERTS") == 2
        assert await desk.database.read(lambda store: store.records.passed_over("ALERTS")) == [1, 2]
