"""What the post office says about tasks: to who asked, to people, and where a worker cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from postroom.bus.port import Stored
from postroom.errors import LostUpdate, StreamFull
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.receipts import State
from postroom.protocol.tasks import chain_headers, task_id
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.ports import TaskRow
from postroom.store.schema import agents
from postroom.tasks import clerk as module
from postroom.tasks.chain import ended
from postroom.tasks.records import TaskRecord
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import status_text
from tests.mail.desk import BACKENDS, SECONDS, running
from tests.tasks.desk import TaskDesk, following, open_desk, tables

pytestmark = pytest.mark.anyio

WORKING, ASKING, DONE = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED


@pytest.mark.requirement("task-kill-requester-told")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_who_asked_is_told_of_what_ends_or_interrupts_a_task(tmp_path: Path, backend: str):
    async with open_desk(tmp_path, backend) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid))
        asking = await desk.write(bob, row, ASKING, "which?")
        row = await desk.write(bob, asking, WORKING)
        done = await desk.write(bob, row, DONE, "42")
        await desk.settled()
        told = await desk.updates(ann.uid)
        assert [(u.state, u.sequence) for u in told] == [(ASKING, asking.seq), (DONE, done.seq)]
        assert all((u.task, u.worker, u.request) == (row.id, bob.uid, row.request) for u in told)
        assert status_text(told[-1].update["task"]) == "42"
        assert await desk.updates(bob.uid) == []


@pytest.mark.requirement("task-kill-requester-told")
async def test_who_wants_every_change_is_told_every_change(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid, stream=True))
        row = await desk.write(bob, row, WORKING, "half")
        await desk.write(bob, row, DONE, "42")
        await desk.settled()
        told = await desk.updates(ann.uid)
        assert [u.state for u in told] == [TaskState.SUBMITTED, WORKING, WORKING, DONE]
        assert "statusUpdate" in told[2].update


async def test_a_worker_that_changes_its_task_without_end_does_not_fill_the_priority_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_NOTICE_BYTES", 5000)
    async with open_desk(tmp_path) as desk:
        ann, bob, eve = [await desk.worker(nick) for nick in ("ann", "bob", "eve")]
        row = await desk.taken(eve, await desk.ask(ann, eve.uid, stream=True))
        for _ in range(10):
            row = await desk.write(eve, row, ASKING, "?" * 1000)
        done = await desk.write(eve, row, DONE, "42")
        other = await desk.taken(bob, await desk.ask(ann, bob.uid))
        asked = await desk.write(bob, other, ASKING, "which?")
        await desk.settled()
        told = await desk.updates(ann.uid)
        assert len([u for u in told if u.task == row.id]) < 8
        assert [u.sequence for u in told][-2:] == [done.seq, asked.seq]


@pytest.mark.requirement("task-kill-requester-told")
async def test_a_worker_cannot_make_the_control_plane_tell_of_a_task_that_nobody_asked_for(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        eve = await desk.worker("eve")
        row = await desk.ask(ann, bob.uid)
        forged = following(row, TaskState.FAILED, "bob is no good")
        await eve.bus.publish(
            forged.subject(eve.uid),
            forged.encode(),
            metadata=chain_headers(eve.uid, row.id, 0),
        )
        invented = TaskRecord(
            {**forged.task, "id": task_id(eve.uid, ann.uid, "x")}, "x", ann.uid, runner="r"
        )
        await eve.bus.publish(
            invented.subject(eve.uid),
            invented.encode(),
            metadata=chain_headers(eve.uid, invented.id, 0),
        )
        await desk.settled()
        assert await desk.updates(ann.uid) == []
        assert (await desk.task(row.id, 0)).seq == 0
        assert desk.fold.statistics.poisoned == 0


async def test_a_requester_whose_lane_is_full_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        cat = await desk.worker("cat")
        publish = desk.bus.publish

        async def full(subject: str, *args: object, **fields: object) -> Stored | None:
            if subject == subjects.priority(ann.uid, "postroom"):
                raise StreamFull("full")
            return await publish(subject, *args, **fields)  # ty: ignore[invalid-argument-type]

        monkeypatch.setattr(desk.bus, "publish", full)
        for asker in (ann, cat):
            row = await desk.write(bob, await desk.ask(asker, bob.uid), TaskState.REJECTED, "no")
        await desk.settled()
        assert await desk.updates(ann.uid) == []
        assert [update.task for update in await desk.updates(cat.uid)] == [row.id]


async def test_an_end_that_has_no_room_in_the_log_holds_up_nobody_and_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_desk(tmp_path) as desk:
        ann, eve = await desk.worker("ann"), await desk.worker("eve")
        maria = await desk.person()
        publish, is_full = desk.bus.publish, True

        async def full(subject: str, *args: object, **fields: object) -> Stored | None:
            if is_full and ".tasks." in subject:
                raise StreamFull("full")
            return await publish(subject, *args, **fields)  # ty: ignore[invalid-argument-type]

        monkeypatch.setattr(desk.bus, "publish", full)
        misdirected = await desk.ask(eve, maria.uid)
        sent = await ann.send(eve.uid)
        assert (await desk.mail(sent.id, State.ACCEPTED)).id == sent.id
        is_full = False
        row = await desk.ask(ann, eve.uid)
        await desk.write(eve, row, TaskState.SUBMITTED)
        assert (await desk.final(misdirected.id)).state == "rejected"


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_request_is_seen_when_its_task_is_taken_and_answered_when_it_has_ended(
    tmp_path: Path, backend: str
):
    async with open_desk(tmp_path, backend) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        asked = await desk.ask(ann, bob.uid)
        row = await desk.taken(bob, asked)
        assert (await desk.mail(row.request, State.SEEN)).state is State.SEEN
        await desk.write(bob, row, DONE, "42")
        assert (await desk.mail(row.request, State.ANSWERED)).state is State.ANSWERED
        await desk.settled()
        assert await desk.admin.last_sequence("RECEIPTS") == 2


@pytest.mark.requirement("task-answer-resumes")
async def test_a_question_raises_one_alert_with_the_way_to_answer(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid))
        row = await desk.write(bob, row, ASKING, "which\none?")
        await desk.settled()
        await desk.task_clerk.sweep()
        await desk.settled()
        (alert,) = await desk.raised()
        short = row.id[:8]
        assert (alert.kind, alert.about) == ("input-required", f"{row.id}/{row.seq}")
        assert alert.who == bob.uid
        assert alert.text == (
            f"asks about task {short}: which one?; postroom task answer {short} TEXT"
        )


async def test_who_has_to_be_let_in_raises_an_alert_as_a_question_does(tmp_path: Path):
    async with open_desk(tmp_path, "memory") as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid))
        row = await desk.write(bob, row, TaskState.AUTH_REQUIRED, "log in at example.com")
        await desk.settled()
        (alert,) = await desk.raised()
        short = row.id[:8]
        assert (alert.kind, alert.about) == ("input-required", f"{row.id}/{row.seq}")
        assert alert.text == (
            f"asks to be let in for task {short}: log in at example.com; "
            f"postroom task answer {short} TEXT"
        )


async def test_a_worker_that_asks_all_the_time_does_not_flood_the_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MOST_ALERTS", 2)
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid))
        for _ in range(5):
            row = await desk.write(bob, row, ASKING, "which?")
            await desk.settled()
        assert len(await desk.raised()) == 2


@pytest.mark.requirement("task-retry")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_task_for_nobody_has_failed_with_the_reason(tmp_path: Path, backend: str):
    async with open_desk(tmp_path, backend) as desk:
        ann = await desk.worker("ann")
        row = await desk.ask(ann, "0" * 32)
        row = await desk.final(row.id)
        assert (row.state, row.runner, row.said) == (
            "failed",
            "postroom",
            f"never reached {'0' * 32}: no such recipient",
        )
        await desk.settled()
        assert [update.state for update in await desk.updates(ann.uid)] == [TaskState.FAILED]
        assert (await desk.mail(row.request, State.DEAD)).state is State.DEAD


@pytest.mark.requirement("task-retry")
async def test_a_removed_workers_last_word_that_is_folded_in_that_moment_hides_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid))
        await desk.mail(row.request, State.SEEN)
        await desk.settled()
        append, said = desk.chain.append, []

        async def late(before: TaskRow, record: TaskRecord) -> int:
            if not said:
                said.append(await desk.write(bob, row, WORKING, "stopped"))
                await desk.settled()
            return await append(before, record)

        monkeypatch.setattr(desk.chain, "append", late)
        await desk.directory.retire(bob.uid)
        await desk.task_clerk.end_hopeless()

        assert (await desk.final(row.id)).said == "the worker was removed"


@pytest.mark.requirement("task-retry")
async def test_tasks_of_a_worker_that_is_removed_have_failed_taken_or_not(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        taken = await desk.taken(bob, await desk.ask(ann, bob.uid))
        waiting = await desk.ask(ann, bob.uid)
        await desk.mail(taken.request, State.SEEN)
        await desk.directory.retire(bob.uid)
        await desk.clerk.sweep()  # as the control plane does; the receipts bring the rest
        assert (await desk.final(taken.id)).said == "the worker was removed"
        assert (await desk.final(waiting.id)).said == "never reached @bob: recipient retired"


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_worker_is_told_of_requests_that_lie_behind_messages_and_of_no_others(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        first = await desk.ask(ann, bob.uid)
        message = await desk.mail((await ann.send(bob.uid)).id, State.ACCEPTED)
        behind = await desk.ask(ann, bob.uid)
        await desk.settled()
        assert await desk.overtaking(bob.uid) == [behind.id]

        await bob.receipt(message, State.SEEN)
        await desk.mail(message.id, State.SEEN)
        await desk.ask(ann, bob.uid)
        await desk.settled()
        assert await desk.overtaking(bob.uid) == [behind.id]
        assert first.seq == 0


@pytest.mark.requirement("task-retry")
async def test_who_asked_a_removed_worker_is_told_one_end_of_each_request(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        taken = await desk.taken(bob, await desk.ask(ann, bob.uid))
        waiting = await desk.ask(ann, bob.uid)
        await desk.mail(taken.request, State.SEEN)
        await desk.directory.retire(bob.uid)

        await desk.clerk.sweep()
        await desk.task_clerk.end_hopeless()

        for row in (taken, waiting):
            await desk.final(row.id)
        await desk.settled()
        assert await desk.ends(ann.uid, taken.request) == [State.ANSWERED]
        assert await desk.ends(ann.uid, waiting.request) == [State.DEAD]


@pytest.mark.requirement("task-retry")
async def test_a_task_for_a_person_is_rejected(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, maria = await desk.worker("ann"), await desk.person()
        row = await desk.final((await desk.ask(ann, maria.uid)).id)
        assert (row.state, row.said) == ("rejected", "@maria is a person, and tasks are for agents")


@pytest.mark.requirement("task-retry")
async def test_stray_records_of_a_worker_do_not_keep_its_task_open_for_ever(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid))
        for _ in range(3):
            await bob.bus.publish(subjects.task(bob.uid, row.id, "working"), b"stray")
        await desk.settled()
        with pytest.raises(LostUpdate):
            await desk.write(bob, row, WORKING)
        await desk.directory.retire(bob.uid)
        await desk.clerk.sweep()
        await desk.task_clerk.end_hopeless()
        assert (await desk.final(row.id)).state == "failed"


async def test_an_end_that_somebody_else_wrote_first_is_left_as_it_is(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        old = await desk.taken(bob, await desk.ask(ann, bob.uid))
        done = await desk.write(bob, old, DONE, "42")
        with pytest.raises(LostUpdate):
            await desk.chain.append(old, ended(old, TaskState.CANCELED, "no need", 1.0))
        assert await desk.task(old.id, done.seq) == done


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.slow
async def test_what_was_stored_while_nothing_folded_is_folded_and_told_after_the_start(
    tmp_path: Path, backend: str
):
    async with open_desk(tmp_path, backend, fold=False) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        asks = await ann.send(bob.uid, request=TaskRequest(), expects_reply=True)
        lost = await ann.send("0" * 32, request=TaskRequest(), expects_reply=True)
        named = task_id(bob.uid, ann.uid, asks.id)
        async with running(desk.new_fold().run()):
            row = await desk.task(named, 0)
        last = 0
        for state in (TaskState.SUBMITTED, WORKING, ASKING):
            record = following(row, state, "which?")
            chained = chain_headers(bob.uid, named, last)
            stored = await bob.bus.publish(
                record.subject(bob.uid), record.encode(), metadata=chained
            )
            assert stored is not None
            last = stored.sequence
            row = replace(row, snapshot=json.dumps(record.task), seq=last, attempt=1)
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            await desk.task(named, last)
            await desk.final(task_id("0" * 32, ann.uid, lost.id))
            await desk.settled()
            told = {(u.task, u.state) for u in await desk.updates(ann.uid)}
            assert (named, ASKING) in told
            assert len({alert.about for alert in await desk.raised()}) == 1


async def conversation(desk: TaskDesk) -> None:
    """Something of everything."""
    ann, bob = await desk.worker("ann"), await desk.worker("bob")
    row = await desk.taken(bob, await desk.ask(ann, bob.uid, stream=True))
    row = await desk.write(bob, row, ASKING, "which?")
    await bob.bus.publish(subjects.task(bob.uid, row.id, "failed"), b"stray")
    done = await desk.taken(bob, await desk.ask(ann, bob.uid))
    await desk.write(bob, done, DONE, "42")
    await desk.final((await desk.ask(ann, "0" * 32)).id)
    await desk.ask(ann, bob.uid)
    await desk.settled()


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_empty_database_folded_from_the_same_log_has_the_same_tasks(
    tmp_path: Path, backend: str
):
    (tmp_path / "other").mkdir()
    async with open_desk(tmp_path, backend) as desk, Database(tmp_path / "other" / "b.db") as other:
        await conversation(desk)
        before = await desk.database.read(tables)
        assert len(before["a2a_tasks"]) == 4
        await migrate(other)
        names = [column.name for column in agents.columns]
        everyone = await desk.database.read(lambda store: store.session.rows(select(agents)))
        rows = [dict(zip(names, row, strict=True)) for row in everyone]
        await other.write(lambda store: store.session.run_many(agents.insert(), rows))
        again = desk.new_fold(other)
        async with running(again.run()):
            await again.ready(SECONDS)
            assert await other.read(tables) == before


async def test_what_is_listed_of_a_task_needs_no_snapshot(tmp_path: Path):
    async with open_desk(tmp_path, "memory") as desk:
        await conversation(desk)
        (asking,) = await desk.database.read(lambda store: store.tasks.interrupted())
        assert asking.said == "which?"


@pytest.mark.requirement("task-retry")
async def test_a_task_for_nobody_under_an_id_that_was_used_before_has_failed(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        first = await desk.ask(ann, bob.uid)
        nobody = "e" * 32
        message = text_message(first.request, "do it")
        again = Envelope(first.request, nobody, message, 1000.0, request=TaskRequest())
        await ann.store(nobody, again.encode())
        named = task_id(nobody, ann.uid, first.request)
        row = await desk.final(named)
        assert (row.state, row.said) == ("failed", f"never reached {nobody}: no such recipient")
        assert not (await desk.task(first.id, 0)).final
