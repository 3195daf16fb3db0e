"""What the user does not keep leaves the rows and the log for good; what is open, or needed, stays."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import select

from postroom.errors import Conflict
from postroom.mail import projection
from postroom.mail.views import Mail
from postroom.projection.rebuild import rebuild
from postroom.projection.retention import Pruned, Pruner, Retention
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import State
from postroom.settings.keeping import DAY, keeping
from postroom.store import copying, snapshot
from postroom.store.database import Store
from postroom.store.schema import (
    a2a_task_events,
    a2a_tasks,
    deadletters,
    memberships,
    messages,
    posts,
)
from postroom.tasks import rules
from postroom_a2a.task_state import TaskState
from tests.mail.desk import SECONDS, Desk, Worker, running, running_desk
from tests.mail.test_deadletters import dead_letter
from tests.tasks.desk import TaskDesk, open_desk

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("mail-retention-covered")]


def pruner(desk: Desk | TaskDesk, days: float, *projects: str, **kinds: str) -> Pruner:
    """As it will be in so many days."""
    rule = keeping(kinds, projects)
    return Pruner(desk.database, rule, clock=lambda: time.time() + days * DAY)


def ids(store: Store) -> list[str]:
    return store.session.column(select(messages.c.id).order_by(messages.c.seq))


async def kept(desk: Desk | TaskDesk) -> list[str]:
    return await desk.database.read(ids)


async def seen(desk: Desk, sender: str, worker: Worker, text: str) -> Mail:
    mail = await desk.office.send(sender, worker.uid, text, expects_reply=False)
    await worker.receipt(mail, State.SEEN)
    await desk.office.wait(mail.id, State.SEEN, SECONDS)
    return mail


def counts(found: Sequence[Pruned]) -> dict[tuple[str, str], int]:
    return {(one.kind, one.project): one.number for one in found}


async def test_without_a_rule_everything_is_kept(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        done = await seen(desk, maria.uid, bob, "done")
        assert await pruner(desk, 10_000).prune() == []
        assert await kept(desk) == [done.id]


async def test_what_ended_longer_ago_than_it_is_kept_goes_and_what_is_open_stays(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        held = await desk.office.send(maria.uid, bob.uid, "held")
        await seen(desk, maria.uid, bob, "done")
        assert await pruner(desk, 29, messages="30d").due() == []
        late = pruner(desk, 31, messages="30d")
        (due,) = await late.due()
        assert (due.kind, due.number, due.size > 0) == ("messages", 1, True)
        assert len(await kept(desk)) == 2  # a look changes nothing
        assert await late.prune() == [due]
        assert await kept(desk) == [held.id]
        assert await late.due() == []


async def test_the_oldest_go_first_where_a_project_has_too_much_but_nothing_of_the_last_day(
    tmp_path: Path,
):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        for number in range(8):
            last = await seen(desk, maria.uid, bob, f"{number}" * 200_000)
        assert await pruner(desk, 0.9, messages="1MiB").prune() == []
        (done,) = await pruner(desk, 2, messages="1MiB").prune()
        left = await kept(desk)
        assert done.number == 8 - len(left)
        assert left[-1] == last.id
        assert 1 <= len(left) * 2 * 200_000 <= 2**20


async def test_a_project_may_have_a_rule_of_its_own(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria = await desk.person()
        one, other = await desk.worker("one"), await desk.worker("other")
        await desk.database.write(
            lambda store: store.session.run_many(
                memberships.insert(),
                [{"uid": one.uid, "project": "alpha"}, {"uid": other.uid, "project": "beta"}],
            )
        )
        await seen(desk, maria.uid, one, "alpha")
        stays = await seen(desk, maria.uid, other, "beta")
        await desk.office.post(maria.uid, "alpha", "morning")
        await desk.office.post(maria.uid, "beta", "morning")
        await desk.folded()
        rule = ("alpha messages 7d", "beta messages for ever", "beta posts 7d")
        late = pruner(desk, 40, *rule, messages="30d")
        assert counts(await late.prune()) == {("messages", "alpha"): 1, ("posts", "beta"): 1}
        assert await kept(desk) == [stays.id]
        left = await desk.database.read(lambda store: store.session.column(select(posts.c.project)))
        assert left == ["alpha"]


async def test_an_answer_stays_as_long_as_its_question(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        asked = await desk.office.send(maria.uid, bob.uid, "well?")
        answer = await bob.send(maria.uid, "yes", reply_to=asked.id)
        await desk.office.wait(asked.id, State.ANSWERED, SECONDS)
        await desk.inboxes.acknowledge(maria.uid, [answer.id], State.SEEN)
        await desk.folded()
        # The question's end is stored after the answer, and here long after.
        await desk.database.write(
            lambda store: store.session.run(
                messages.update()
                .where(messages.c.id == asked.id)
                .values(updated_at=time.time() + 5 * DAY)
            )
        )
        assert await pruner(desk, 31, messages="30d").prune() == []
        assert await kept(desk) == [asked.id, answer.id]
        assert len(await pruner(desk, 36, messages="30d").due()) == 1
        await pruner(desk, 36, messages="30d").prune()
        assert await kept(desk) == []


async def test_a_dead_message_stays_until_its_letter_is_dropped(tmp_path: Path):
    async with running_desk(tmp_path) as desk, running(desk.mover.run()):
        _, _, letter = await dead_letter(desk)
        late = pruner(desk, 31, messages="30d")
        assert await late.prune() == []
        await desk.dead.drop(letter.id)
        await late.prune()
        assert await kept(desk) == []
        assert await desk.database.read(lambda store: store.session.rows(select(deadletters))) == []


@pytest.mark.requirement("post-key-once")
async def test_what_was_given_up_is_not_sent_again_under_its_key_for_a_year(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob, eve = await desk.person(), await desk.worker("bob"), await desk.worker("eve")
        mail = await desk.office.send(maria.uid, bob.uid, "pay", key="k", expects_reply=False)
        await bob.receipt(mail, State.SEEN)
        await desk.office.wait(mail.id, State.SEEN, SECONDS)
        again = await desk.office.send(maria.uid, bob.uid, "pay", key="k", expects_reply=False)
        assert again.id == mail.id
        await pruner(desk, 31, messages="30d").prune()

        for _ in range(2):
            with pytest.raises(Conflict, match=time.strftime("on %Y-%m-%d", time.gmtime())):
                await desk.office.send(maria.uid, bob.uid, "pay", key="k")
        # What is stored past the post office counts no more either.
        forged = Envelope(mail.id, bob.uid, json.loads(str(mail.message)), time.time())
        subject = subjects.inbox(bob.uid, maria.uid)
        await desk.bus.publish(subject, forged.encode())
        await desk.folded()
        assert await kept(desk) == []
        # A copy of the rows and the log behind it know it, too.
        kept_copy = tmp_path / "snapshots" / snapshot.NAME
        await asyncio.to_thread(copying.take, desk.database, kept_copy, "default")
        await rebuild(desk.database, desk.admin, projection.RULES, kept_copy)
        with pytest.raises(Conflict):
            await desk.office.send(maria.uid, bob.uid, "pay", key="k")
        # Another recipient, key or sender is another message.
        for sender, recipient, key in ((maria, eve, "k"), (maria, bob, "l"), (eve, bob, "k")):
            await desk.office.send(sender.uid, recipient.uid, "pay", key=key)
        assert len(await kept(desk)) == 3

        await pruner(desk, 368).prune()
        new = await desk.office.send(maria.uid, bob.uid, "pay", key="k")
        assert (new.id, new.text) == (mail.id, "pay")


async def test_what_was_given_up_is_gone_from_the_log_and_no_rebuild_brings_it_back(tmp_path: Path):
    async with running_desk(tmp_path, fold=False) as desk:
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            maria, bob = await desk.person(), await desk.worker("bob")
            await seen(desk, maria.uid, bob, "done")
            held = await desk.office.send(maria.uid, bob.uid, "held")
            await desk.office.post(maria.uid, "main", "morning")
            await desk.folded()
            clock = lambda: time.time() + 31 * DAY  # noqa: E731
            late = pruner(desk, 31, messages="30d", posts="30d")
            await Retention(
                desk.admin,
                desk.database,
                tmp_path / "kept",
                projection.OVER,
                org="default",
                pruner=late,
                clock=clock,
            ).shorten()
            again = await desk.office.send(maria.uid, bob.uid, "after it")
            await desk.folded()
        left = [record.sequence async for record in desk.admin.replay("INBOX")]
        assert len(left) == 2
        assert [record async for record in desk.admin.replay("FEED")] == []
        await rebuild(
            desk.database, desk.admin, projection.RULES, tmp_path / "kept" / snapshot.NAME
        )
        assert await kept(desk) == [held.id, again.id]


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_task_goes_with_its_events_and_its_request_and_an_open_one_stays(tmp_path: Path):
    async with open_desk(tmp_path, "memory") as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        done = await desk.taken(bob, await desk.ask(ann, bob.uid))
        held = await desk.taken(bob, await desk.ask(ann, bob.uid))
        done = await desk.write(bob, done, TaskState.COMPLETED, "42")
        await desk.settled()
        # A rule for messages alone leaves requests with their tasks.
        assert await pruner(desk, 31, messages="30d").prune() == []
        late = pruner(desk, 31, tasks="30d", messages="30d")
        assert counts(await late.prune()) == {("tasks", ""): 1}
        assert await kept(desk) == [held.request]
        left = await desk.database.read(
            lambda store: (
                set(store.session.column(select(a2a_tasks.c.id))),
                set(store.session.column(select(a2a_task_events.c.task))),
            )
        )
        assert left == ({held.id}, {held.id})
        over = projection.OVER | rules.OVER
        clock = lambda: time.time() + 2 * DAY  # noqa: E731
        shortened = Retention(
            desk.admin, desk.database, tmp_path / "kept", over, org="default", clock=clock
        )
        await shortened.shorten()
        subjects = [record.subject async for record in desk.admin.replay("TASKS")]
        assert {subject.split(".")[3] for subject in subjects} == {held.id}


async def test_the_progress_of_an_ended_task_goes_and_its_result_and_turns_stay(tmp_path: Path):
    async with open_desk(tmp_path, "memory") as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        done = await desk.taken(bob, await desk.ask(ann, bob.uid))
        for number in range(5):
            done = await desk.write(bob, done, TaskState.WORKING, f"{number}")
        done = await desk.write(bob, done, TaskState.COMPLETED, "42")
        await desk.settled()
        before = await desk.task(done.id, done.seq)
        states = select(a2a_task_events.c.state).order_by(a2a_task_events.c.seq)
        was = await desk.database.read(lambda store: store.session.column(states))
        late = pruner(desk, 8, events="7d")
        assert counts(await late.prune()) == {("events", ""): len(was) - len(set(was))}
        assert await desk.database.read(lambda store: store.session.column(states)) == list(
            dict.fromkeys(was)
        )
        assert await desk.task(done.id, done.seq) == before
        assert await late.prune() == []


def test_rules_are_read_and_wrong_ones_refused():
    rules_of = keeping({"messages": "90d 2GiB"}, ("#research messages 30d",))
    assert rules_of.of("messages", "research").seconds == 30 * DAY
    assert rules_of.of("messages", "other").size == 2 * 2**30
    assert not rules_of.limited("tasks")
