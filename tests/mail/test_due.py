"""Expiry and alerts about messages that nobody takes."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from postroom.errors import BusDisconnected
from postroom.mail.clerk import Expiry
from postroom.mail.patience import Patience, Waits
from postroom.projection.changes import ALERTS, Change, Changes
from postroom.projection.due import LONGEST_SLEEP, Due, Watch
from postroom.projection.submit import append_alert
from postroom.protocol import subjects
from postroom.protocol.receipts import Receipt, State
from postroom.store.messages import MessageRow
from tests.mail.desk import BACKENDS, SECONDS, Desk, running, running_desk
from tests.mail.test_pair_limits import by_grants_alone
from tests.supervised import supervised

pytestmark = pytest.mark.anyio


def patience(desk: Desk, after: float, waits: Waits | None = None) -> Patience:
    alert = partial(append_alert, desk.bus)
    return Patience(desk.database, desk.clerk, alert, after, waits)


@pytest.mark.requirement("mail-offline-waits")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_message_whose_time_is_over_is_dead_expired(tmp_path: Path, backend: str):
    async with running_desk(tmp_path, backend) as desk:
        maria, _ = await desk.person(), await desk.worker("bob")
        watch = Watch(Expiry(desk.database, desk.clerk), desk.changes)
        async with running(watch.run()):
            sent = await desk.office.send(maria.uid, "@bob", "quick", expires_in=0.2)
            kept = await desk.office.send(maria.uid, "@bob", "slow", expires_in=3600)
            dead = await desk.office.wait(sent.id, State.DEAD, SECONDS)
        assert (dead.state, dead.reason) == (State.DEAD, "expired")
        assert (await desk.office.get(kept.id)).state is State.ACCEPTED


async def test_a_message_that_was_answered_in_time_does_not_expire(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "quick", expires_in=60)
        await bob.send(maria.uid, "done", reply_to=sent.id)
        await desk.office.wait(sent.id, State.ANSWERED, SECONDS)
        due = await Expiry(desk.database, desk.clerk).find(sent.sent_at + 3600)
        assert due == Due([], None)


async def test_what_was_done_is_not_done_again_before_it_is_folded(tmp_path: Path):
    async with running_desk(tmp_path, fold=False) as desk:
        maria, _ = await desk.person(), await desk.worker("bob")
        async with running(desk.fold.run()):
            sent = await desk.office.send(maria.uid, "@bob", "quick", expires_in=1)
        late = Watch(Expiry(desk.database, desk.clerk), desk.changes, lambda: sent.sent_at + 10)
        await late.step()
        await late.step()
        assert await desk.admin.last_sequence("RECEIPTS") == 1


@pytest.mark.requirement("sidecar-message-handed")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_agent_that_takes_no_messages_raises_one_alert_until_it_does(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        taken = await desk.office.send(maria.uid, "@bob", "taken")
        await bob.receipt(taken, State.DELIVERED)
        await desk.office.wait(taken.id, State.DELIVERED, SECONDS)
        sent = [await desk.office.send(maria.uid, "@bob", text) for text in ("hello", "again")]
        stale = patience(desk, 0.1)
        async with running(Watch(stale, desk.changes).run()):
            alerts = await desk.changes.until(ALERTS, desk.alerts.standing, bool, SECONDS)
        (alert,) = alerts
        assert (alert.row.kind, alert.who and alert.who.nick) == ("stale", "bob")
        assert alert.row.text.endswith("2 wait, the first from @maria")
        # Also after a restart, which remembers nothing but the log; and not for each message that follows.
        later = await desk.office.send(maria.uid, "@bob", "still there?")
        assert (await stale.find(later.sent_at + 3600)).now == []

        for mail in (*sent, later):
            await bob.receipt(mail, State.DELIVERED)
            await desk.office.wait(mail.id, State.DELIVERED, SECONDS)
        assert await desk.alerts.standing() == []


@pytest.mark.requirement("post-sender-told")
async def test_a_sender_is_told_once_of_each_recipient_why_its_message_waits_until_it_is_taken(
    tmp_path: Path,
):
    async with running_desk(tmp_path) as desk:
        maria, bob, eve = await desk.person(), await desk.worker("bob"), await desk.worker("eve")
        waits = Waits(why=lambda uid: "offline since 12:03" if uid == bob.uid else "")
        job = patience(desk, 600.0, waits)
        first, second = [await desk.office.send(maria.uid, "@bob", text) for text in "12"]
        own = await eve.send(bob.uid, "of a worker")
        await desk.mail(own.id, State.ACCEPTED)
        other = await desk.office.send(maria.uid, "@eve", "3")
        later = SimpleNamespace(now=first.sent_at)
        watch = Watch(job, desk.changes, lambda: later.now)

        assert job.due_at(await row_of(desk, first.id)) == pytest.approx(first.sent_at + 600, abs=5)
        await watch.step()
        assert await waiting(desk) == {}
        later.now += 700
        for _ in range(3):  # also after a restart, which remembers nothing but the log
            await watch.step()
            await desk.folded()
            watch = Watch(job, desk.changes, lambda: later.now)
        told = "stored, not seen for 10 min: @bob offline since 12:03"
        assert await waiting(desk) == {
            first.id: told,
            own.id: told,
            other.id: "stored, not seen for 10 min: @eve has not taken it",
        }
        alerts = {one.who.nick: one.row.text for one in await desk.alerts.standing() if one.who}
        assert alerts == {
            "bob": "has not taken its messages for 10 min: 3 wait, the first from @maria;"
            " offline since 12:03",
            "eve": "has not taken its messages for 10 min: 1 wait, the first from @maria",
        }

        await bob.receipt(first, State.SEEN)
        seen = await desk.office.wait(first.id, State.SEEN, SECONDS)
        assert (seen.state, seen.reason) == (State.SEEN, "")
        await watch.step()
        await desk.folded()
        assert (await desk.office.get(second.id)).reason == told


@pytest.mark.requirement("post-sender-told")
async def test_who_is_let_in_for_messages_alone_is_not_told_whether_the_recipient_is_there(
    tmp_path: Path,
):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        await by_grants_alone(desk, bob.uid, maria.uid)
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        secret = "offline since 12:03"
        job = patience(desk, 60.0, Waits(why=lambda _: secret, told=lambda _: secret))
        await Watch(job, desk.changes, lambda: sent.sent_at + 70).step()
        await desk.folded()
        told = "stored, not seen for 1 min: @bob has not taken it"
        assert (await desk.office.get(sent.id)).reason == told


@pytest.mark.requirement("post-sender-told")
async def test_only_the_post_office_says_why_an_accepted_message_waits(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        said = Receipt(sent.id, bob.uid, State.ACCEPTED, sent.sent_at, "I am on holiday")
        await bob.bus.publish(subjects.receipts(maria.uid, bob.uid), said.encode())
        await desk.folded()
        assert (await desk.office.get(sent.id)).reason == ""


async def row_of(desk: Desk, message: str) -> MessageRow:
    row = await desk.database.read(lambda store: store.messages.message_by_id(message))
    assert row is not None
    return row


async def waiting(desk: Desk) -> dict[str, str]:
    return {mail.id: mail.reason for mail in await desk.all_mail() if mail.reason}


async def test_the_unread_mail_of_a_person_is_no_alert(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(bob.uid, "@maria", "read me")
        stale = patience(desk, 0.1)
        assert (await stale.find(sent.sent_at + 3600)) == Due([], None)
        assert maria.uid == sent.recipient.uid


async def test_mail_of_whom_its_sender_knows_to_be_away_is_no_alert_and_hides_none(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        away = [bob.uid]
        stale = patience(desk, 0.1, Waits(settling=lambda _: away))
        first = await desk.office.send(maria.uid, "@bob", "one")
        assert (await stale.find(first.sent_at)) == Due([], None)
        await desk.worker("eve")
        sent = await desk.office.send(maria.uid, "@eve", "two")
        due = await stale.find(first.sent_at)
        assert due.next_at is not None
        assert [found.row.id for found in (await stale.find(sent.sent_at + 3600)).now] == [sent.id]
        away.clear()
        found = (await stale.find(sent.sent_at + 3600)).now
        assert {each.row.id for each in found} == {first.id, sent.id}


async def test_a_cleared_alert_about_mail_comes_back_only_for_later_mail(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, _ = await desk.person(), await desk.worker("bob")
        first = await desk.office.send(maria.uid, "@bob", "hello")
        stale = patience(desk, 0.0)
        (due,) = (await stale.find(first.sent_at + 3600)).now
        await stale.act(due)
        await desk.changes.until(ALERTS, desk.alerts.standing, bool, SECONDS)

        assert await desk.alerts.clear() == 1
        assert (await stale.find(first.sent_at + 3600)).now == []
        second = await desk.office.send(maria.uid, "@bob", "hello?")
        assert [found.row.id for found in (await stale.find(first.sent_at + 3600)).now] == [
            second.id
        ]


class Failing:
    """A task whose bus is away."""

    def __init__(self, row: MessageRow) -> None:
        self.row = row
        self.tried = 0
        self.again = asyncio.Event()

    async def find(self, now: float) -> Due:
        return Due([self.row], None)

    def due_at(self, row: MessageRow) -> float | None:
        return 0.0

    async def act(self, row: MessageRow) -> None:
        self.tried += 1
        if self.tried > 1:
            self.again.set()
        raise BusDisconnected("gone")


async def test_a_bus_that_is_away_does_not_end_the_watch():
    task = Failing(MessageRow(1, "m", "a", "b", "", "{}", 0.0, 0.0, 0.0))
    async with supervised(Watch(task, Changes()).run):
        await asyncio.wait_for(task.again.wait(), SECONDS)
    assert task.tried > 1


class Nothing:
    async def find(self, now: float) -> Due:
        return Due([], None)

    def due_at(self, row: MessageRow) -> float | None:
        return 0.0

    async def act(self, row: MessageRow) -> None:
        raise AssertionError


async def test_with_nothing_waiting_the_watch_sleeps_long():
    assert await Watch(Nothing(), Changes()).step() == LONGEST_SLEEP


class Counting:
    """A task that has nothing to do, and notes that it was asked."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()

    async def find(self, now: float) -> Due:
        self.asked.put_nowait(now)
        return Due([], None)

    def due_at(self, row: MessageRow) -> float | None:
        return row.expires_at or None

    async def act(self, row: MessageRow) -> None:
        raise AssertionError


def new_mail(seq: int, expires_at: float = 1.0) -> Change:
    row = MessageRow(seq, "m", "a", "b", "", "{}", 0.0, 0.0, 0.0, expires_at=expires_at)
    return Change("mail", seq, row=row)


async def test_mail_that_is_not_due_before_the_watch_wakes_costs_no_query():
    task, changes = Counting(), Changes()
    async with running(Watch(task, changes, clock=lambda: 1000.0).run()):
        await asyncio.wait_for(task.asked.get(), SECONDS)
        await asyncio.sleep(0)
        changes.publish([new_mail(1, 0.0), new_mail(2, 1000.0 + LONGEST_SLEEP + 1)])
        changes.publish([new_mail(3, 1000.0 + LONGEST_SLEEP - 1)])
        await asyncio.wait_for(task.asked.get(), SECONDS)
        assert task.asked.empty()


async def test_mail_is_gathered_before_sql_is_asked(monkeypatch: pytest.MonkeyPatch):
    gathering, gathered = asyncio.Event(), asyncio.Event()

    async def gather(_: float) -> None:
        gathering.set()
        await gathered.wait()

    task, changes = Counting(), Changes()
    # Not `asyncio.sleep` itself: whatever else runs in this loop would never pause again.
    monkeypatch.setattr("postroom.projection.due.asyncio", SimpleNamespace(sleep=gather))
    async with running(Watch(task, changes).run()):
        await asyncio.wait_for(task.asked.get(), SECONDS)
        changes.publish([new_mail(1)])
        await asyncio.wait_for(gathering.wait(), SECONDS)
        changes.publish([new_mail(seq) for seq in range(2, 100)])
        assert task.asked.empty()
        gathered.set()
        await asyncio.wait_for(task.asked.get(), SECONDS)


async def test_closing_the_changes_ends_the_watch():
    changes = Changes()
    watching = asyncio.create_task(Watch(Nothing(), changes).run())
    await asyncio.sleep(0)
    changes.close()
    await asyncio.wait_for(watching, SECONDS)
