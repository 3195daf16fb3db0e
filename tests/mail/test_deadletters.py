"""From a delivery that failed to a letter that a person requeues or drops."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from postroom.bus.nats import NatsBus
from postroom.bus.port import Delivery, Message
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.mail.views import DeadLetter, Mail
from postroom.projection.changes import DEADLETTERS
from postroom.protocol import priority, subjects
from postroom.protocol.priority import Input, Update
from postroom.protocol.receipts import State
from postroom.protocol.streams import BY_NAME, ConsumerSpec
from postroom_a2a.task_state import TaskState
from tests.mail.desk import (
    BACKENDS,
    NOW,
    SECONDS,
    Desk,
    GivenDelivery,
    Worker,
    running,
    running_desk,
)

pytestmark = pytest.mark.anyio

TASK = "c" * 32


async def terminate(delivery: Delivery) -> None:
    await delivery.term("cannot read this")


async def letters(desk: Desk) -> list[DeadLetter]:
    """The dead letters, once there is one."""
    return await desk.changes.until(DEADLETTERS, desk.dead.all, bool, SECONDS)


async def dead_letter(desk: Desk) -> tuple[Worker, Mail, DeadLetter]:
    """A message that bob's consumer terminated."""
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "hello")
    subscription = await bob.bus.consume("INBOX", bob.uid, terminate)
    try:
        (letter,) = await letters(desk)
        dead = await desk.mail(sent.id, State.DEAD)
    finally:
        await subscription.close()
    return bob, dead, letter


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_terminated_message_is_dead_with_the_reason_and_a_letter(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend) as desk, running(desk.mover.run()):
        _, dead, letter = await dead_letter(desk)
        assert dead.state is State.DEAD
        assert "cannot read this" in dead.reason
        assert (letter.message_id, letter.text, letter.attempts) == (dead.id, "hello", 1)
        for ref in (str(letter.id), dead.id, dead.id[:4]):
            assert await desk.dead.find(ref) == letter.id
        for none in ("999999", dead.id[:3], "f" * 31, "letter", "9" * 30, "³"):
            with pytest.raises(NotFound):
                await desk.dead.find(none)
        assert dead.attempts == 1


@pytest.mark.requirement("mail-content-whole")
async def test_a_message_that_its_recipient_does_not_take_is_dead_with_the_recipient_s_words(
    tmp_path: Path,
):
    async def refuse(delivery: Delivery) -> None:
        await delivery.term("refused: takes text/plain only")

    async with running_desk(tmp_path) as desk, running(desk.mover.run()):
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        subscription = await bob.bus.consume("INBOX", bob.uid, refuse)
        dead = await desk.mail(sent.id, State.DEAD)
        await subscription.close()

    assert dead.reason == "refused: takes text/plain only"


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_message_whose_recipient_died_each_time_is_found_by_poking_its_consumer(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend) as desk, running(desk.mover.run()):
        maria, bob = await desk.person(), await desk.worker("bob")
        short = ConsumerSpec(
            "INBOX", bob.uid, (f"worker.{bob.uid}.inbox.*",), ack_wait=0.2, max_deliver=1
        )
        await desk.admin.delete_consumer("INBOX", bob.uid)
        await desk.admin.ensure_consumer(short)
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        taken = asyncio.Event()

        async def die(delivery: Delivery) -> None:
            taken.set()

        subscription = await bob.bus.consume("INBOX", bob.uid, die)
        await asyncio.wait_for(taken.wait(), SECONDS)
        await subscription.close()

        # As long after as the exhausted delivery takes to count; each poke asks the server again.
        desk.mover._clock = lambda: 1e12
        async with asyncio.timeout(SECONDS):
            while not await desk.dead.count():
                await desk.mover.poke()
                await desk.changes.until(DEADLETTERS, desk.dead.count, bool, 0.1)
        dead = await desk.mail(sent.id, State.DEAD)
        assert dead.reason == "undeliverable: 1 attempts"


def advisory(desk: Desk, consumer: str, sequence: int) -> GivenDelivery:
    payload = json.dumps(
        {"stream": "INBOX", "consumer": consumer, "stream_seq": sequence, "deliveries": 3}
    )
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.INBOX.{consumer}"
    return GivenDelivery(Message("", "", subject, payload.encode(), {}, 1.0, 1))


@pytest.mark.requirement("mail-floods-contained")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.requirement("mend-letters-shared")
async def test_who_refuses_what_it_sends_itself_without_end_leaves_room_for_the_letters_of_others(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend) as desk:
        spec = BY_NAME["DEADLETTER"]
        assert 0 < spec.max_per_subject * spec.max_message_bytes <= spec.max_bytes // 4
        await desk.admin.ensure_stream(replace(spec, max_per_subject=2))
        maria, bob, mallory = (
            await desk.person(),
            await desk.worker("bob"),
            await desk.worker("mallory"),
        )
        own = [await mallory.send(mallory.uid, "again") for _ in range(4)]
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        await desk.folded()
        for number, message in enumerate(own, 1):
            await desk.mover.handle(advisory(desk, mallory.uid, number))
            assert (await desk.mail(message.id, State.DEAD)).state is State.DEAD
        given = advisory(desk, bob.uid, sent.seq)
        await desk.mover.handle(given)
        await desk.folded()

        kept = await desk.dead.all()
        assert given.outcome == "ack"
        assert [letter.message_id for letter in kept] == [sent.id, own[1].id, own[0].id]
        for letter in kept:  # also those of who has as many as it may
            await desk.dead.drop(letter.id)
        assert await desk.dead.count() == 0


@pytest.mark.requirement("mail-deadletter-moved")
async def test_the_same_advisory_again_after_a_crash_makes_no_second_letter(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        for _ in range(2):
            given = advisory(desk, bob.uid, sent.seq)
            await desk.mover.handle(given)
            assert given.outcome == "ack"
            await desk.folded()
        assert len(await desk.dead.all()) == 1
        assert (await desk.office.get(sent.id)).reason == "undeliverable: 3 attempts"


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_crash_after_the_letter_and_before_the_receipt_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        report = desk.clerk.report

        async def crash(*args: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(desk.clerk, "report", crash)
        with pytest.raises(ZeroDivisionError):
            await desk.mover.handle(advisory(desk, bob.uid, sent.seq))
        monkeypatch.setattr(desk.clerk, "report", report)
        await desk.mover.handle(advisory(desk, bob.uid, sent.seq))
        assert (await desk.mail(sent.id, State.DEAD)).state is State.DEAD
        await desk.folded()
        assert await desk.dead.count() == 1


async def test_a_message_that_was_seen_is_no_dead_letter(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "hello", expects_reply=False)
        await bob.receipt(sent, State.SEEN)
        await desk.office.wait(sent.id, State.SEEN, SECONDS)
        await desk.mover.handle(advisory(desk, bob.uid, sent.seq))
        await desk.folded()
        assert await desk.dead.count() == 0
        assert (await desk.office.get(sent.id)).state is State.SEEN


async def test_an_advisory_about_a_message_that_is_not_folded_waits(tmp_path: Path):
    async with running_desk(tmp_path, fold=False) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        await bob.send(maria.uid)
        given = advisory(desk, maria.uid, 1)
        await desk.mover.handle(given)
        assert given.outcome == "nak"


async def test_something_that_is_no_advisory_is_ended(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        given = advisory(desk, "x", 1)
        given.message = replace(given.message, payload=b"junk")
        await desk.mover.handle(given)
        assert given.outcome == "term"


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_requeued_letter_is_a_new_message_of_its_sender_and_the_old_one_stays_dead(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend) as desk, running(desk.mover.run()):
        _, dead, letter = await dead_letter(desk)
        new = await desk.dead.requeue(letter.id)
        again = await desk.office.get(new)
        assert (again.text, again.sender, again.recipient) == ("hello", dead.sender, dead.recipient)
        assert (again.state, again.requeue_of) == (State.ACCEPTED, dead.id)
        assert (await desk.office.get(dead.id)).state is State.DEAD
        assert (await desk.dead.get(letter.id)).requeued_as == new
        assert await desk.dead.requeue(letter.id) == new


async def test_a_letter_to_a_retired_agent_cannot_be_requeued(tmp_path: Path):
    async with running_desk(tmp_path) as desk, running(desk.mover.run()):
        bob, _, letter = await dead_letter(desk)
        await desk.directory.retire(bob.uid)
        with pytest.raises(Conflict):
            await desk.dead.requeue(letter.id)


async def test_junk_that_was_terminated_is_a_letter_that_cannot_be_requeued(tmp_path: Path):
    async with running_desk(tmp_path) as desk, running(desk.mover.run()):
        bob, eve = await desk.worker("bob"), await desk.worker("eve")
        await eve.store(bob.uid, b"junk")
        subscription = await bob.bus.consume("INBOX", bob.uid, terminate)
        (letter,) = await letters(desk)
        await subscription.close()
        assert (letter.text, letter.message_id, letter.sender.nick) == ("junk", "", "eve")
        with pytest.raises(InvalidInput):
            await desk.dead.requeue(letter.id)


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_dropped_letter_is_gone_from_the_list_and_kept_in_the_log(tmp_path: Path):
    async with running_desk(tmp_path) as desk, running(desk.mover.run()):
        _, dead, letter = await dead_letter(desk)
        await desk.dead.drop(letter.id)
        assert await desk.dead.all() == []
        with pytest.raises(NotFound):
            await desk.dead.get(letter.id)
        assert (await desk.office.get(dead.id)).state is State.DEAD
        assert (await desk.admin.get("DEADLETTER", letter.id)).payload


@pytest.mark.requirement("mail-states-forward")
async def test_an_agent_cannot_declare_dead_what_was_sent_to_another(tmp_path: Path):
    async with running_desk(tmp_path, "nats") as desk, running(desk.mover.run()):
        maria, alice, mallory = (
            await desk.person(),
            await desk.worker("alice"),
            await desk.worker("mallory"),
        )
        to_alice = await desk.office.send(maria.uid, "@alice", "hello")
        to_mallory = await desk.office.send(maria.uid, "@mallory", "hello")
        # Mallory refuses a delivery that it never had: the server puts any sequence into its advisory.
        for sequence in (to_alice.seq, to_mallory.seq):
            forged = f"$JS.ACK.INBOX.{mallory.uid}.1.{sequence}.1.{int(NOW)}.0"
            await cast("NatsBus", mallory.bus)._link.send(forged, b"+TERM gone")

        assert (await desk.mail(to_mallory.id, State.DEAD)).state is State.DEAD
        await desk.folded()
        assert (await desk.office.get(to_alice.id)).state is State.ACCEPTED
        assert [letter.recipient.nick for letter in await desk.dead.all()] == ["mallory"]
        assert alice.uid != mallory.uid


@pytest.mark.requirement("mail-floods-contained")
async def test_an_agent_that_floods_with_refusals_does_not_push_out_another_ones(tmp_path: Path):
    async with running_desk(tmp_path, "nats") as desk:
        maria, alice = await desk.person(), await desk.worker("alice")
        mallory = await desk.worker("mallory")
        sent = await desk.office.send(maria.uid, "@alice", "hello")
        link = cast("NatsBus", mallory.bus)._link
        subscription = await alice.bus.consume("INBOX", alice.uid, terminate)
        async with asyncio.timeout(SECONDS):
            while not await desk.admin.last_sequence("ADVISORIES"):
                await desk.admin.poke("INBOX", alice.uid)
        await subscription.close()

        for _ in range(80):
            forged = f"$JS.ACK.INBOX.{mallory.uid}.1.1.1.{int(NOW)}.0"
            await link.send(forged, b"+TERM " + b"x" * 1_000_000)
        await mallory.receipt(
            await desk.office.get(sent.id), State.SEEN
        )  # what came before is done

        async with running(desk.mover.run()):
            assert (await desk.mail(sent.id, State.DEAD)).state is State.DEAD


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_answer_that_was_never_taken_is_a_letter_for_a_person_and_news_of_a_task_is_none(
    tmp_path: Path, backend: str
):
    async with running_desk(tmp_path, backend) as desk, running(desk.mover.run()):
        maria, bob = await desk.person(), await desk.worker("bob")
        update = Update(TASK, maria.uid, "m", 1, 1, TaskState.COMPLETED, {"task": {}})
        forged = Update(TASK, maria.uid, "n", 1, 1, TaskState.COMPLETED, {"task": {}})
        answer = Input(TASK, {"parts": [{"text": "the left one"}]})
        await desk.bus.publish(subjects.priority(bob.uid, "postroom"), priority.encode(update))
        await desk.bus.publish(subjects.priority(bob.uid, maria.uid), priority.encode(answer))
        await desk.bus.publish(subjects.priority(bob.uid, bob.uid), priority.encode(forged))

        async def refuse(delivery: Delivery) -> None:
            await delivery.term("no such task here")

        subscription = await bob.bus.consume("PRIORITY", bob.uid, refuse)
        letters = await desk.changes.until(
            DEADLETTERS, desk.dead.all, lambda found: len(found) == 2, SECONDS
        )
        await subscription.close()
        found = {letter.sender.uid: letter for letter in letters}
        assert set(found) == {maria.uid, bob.uid}
        letter = found[maria.uid]
        assert (letter.recipient.uid, letter.text) == (bob.uid, "the left one")
        assert "no such task here" in letter.reason
        with pytest.raises(InvalidInput, match="never a message"):
            await desk.dead.requeue(letter.id)
        await desk.dead.drop(letter.id)
        assert [each.sender.uid for each in await desk.dead.all()] == [bob.uid]
