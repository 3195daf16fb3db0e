"""Sending and following a message, over a real bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.port import MessageBusProvider, Stored
from postroom.errors import (
    Conflict,
    InvalidInput,
    MessageTooLarge,
    NoResponders,
    NotFound,
    NotLetIn,
    PostroomError,
    Refused,
    RequestTimeout,
    StreamFull,
    UnknownRecipient,
)
from postroom.projection.changes import ALERTS
from postroom.protocol.envelope import MAX_ENVELOPE_BYTES
from postroom.protocol.ids import message_id
from postroom.protocol.receipts import State
from postroom.protocol.streams import BY_NAME
from postroom.store.messages import MessageRow
from tests.mail.desk import BACKENDS, SECONDS, Desk, running_desk

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BACKENDS)
async def desk(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    async with running_desk(tmp_path, request.param) as running:
        yield running


async def test_a_sent_message_can_be_read_at_once_and_is_accepted(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "hello")
    assert await desk.office.get(sent.id) == sent
    assert (sent.state, sent.text, sent.recipient.uid, sent.sender.nick) == (
        State.ACCEPTED,
        "hello",
        bob.uid,
        "maria",
    )
    assert sent.seq > 0


async def test_the_beginning_of_an_id_names_the_only_message_that_begins_so(desk: Desk):
    maria = await desk.person()
    await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "hello", folded=False)
    for digits in (4, 8, 31, 32):
        assert await desk.office.find(sent.id[:digits]) == sent.id
    for none in (sent.id[:3], "zz" + sent.id[:6], "f" * 31):
        with pytest.raises(NotFound):
            await desk.office.get(await desk.office.find(none))


async def test_a_beginning_that_several_messages_have_is_refused_with_their_names(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    for seq, twin in enumerate(("abcd1" + "0" * 27, "abcd2" + "0" * 27, "abcd20"), 900):
        row = MessageRow(seq, twin, maria.uid, bob.uid, "x", "{}", 1.0, 1.0, 1.0)
        await desk.database.write(lambda store, row=row: store.messages.insert_message(row))
    with pytest.raises(Conflict) as caught:
        await desk.office.find("abcd")
    assert caught.value.message == (
        "several messages begin with abcd: abcd10000000, abcd20, abcd20000000"
    )
    assert await desk.office.find("abcd1") == "abcd1" + "0" * 27
    assert await desk.office.find("abcd20") == "abcd20"  # all of it is the id of one


async def test_the_envelope_in_the_log_names_the_recipient_and_carries_the_message_id(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await desk.office.send(maria.uid, bob.uid, "hello")
    record = await desk.admin.get("INBOX", sent.seq)
    assert (record.id, record.sender_uid) == (sent.id, maria.uid)


@pytest.mark.requirement("mail-states-forward")
async def test_receipts_of_the_recipient_move_the_state_and_wake_whoever_waits(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "hello", expects_reply=False)
    waiting = asyncio.create_task(desk.office.wait(sent.id, State.SEEN, SECONDS))
    await bob.receipt(sent, State.DELIVERED)
    await bob.receipt(sent, State.SEEN)
    seen = await waiting
    assert (seen.state, seen.final, seen.timed_out) == (State.SEEN, True, False)


async def test_waiting_for_what_does_not_come_returns_the_present_state(desk: Desk):
    maria = await desk.person()
    await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "hello")
    waited = await desk.office.wait(sent.id, State.SEEN, 0.05)
    assert (waited.state, waited.timed_out) == (State.ACCEPTED, True)


@pytest.mark.requirement("mail-states-forward")
async def test_a_reply_makes_the_message_answered(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "how are you?")
    reply = await bob.send(maria.uid, "well", reply_to=sent.id)
    answered = await desk.office.wait(sent.id, State.ANSWERED, SECONDS)
    assert answered.state is State.ANSWERED
    assert answered.answer is not None
    assert (answered.answer.id, answered.answer.text) == (reply.id, "well")


@pytest.mark.requirement("mail-states-forward")
async def test_a_reply_of_a_stranger_answers_nothing(desk: Desk):
    maria, mallory = await desk.person(), await desk.worker("mallory")
    await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "how are you?")
    forged = await mallory.send(maria.uid, "well", reply_to=sent.id)
    await desk.mail(forged.id, State.ACCEPTED)
    await desk.folded()
    assert (await desk.office.get(sent.id)).state is State.ACCEPTED


@pytest.mark.requirement("mail-states-forward")
async def test_answered_without_an_answer_in_the_log_is_only_seen(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "how are you?")
    await bob.receipt(sent, State.ANSWERED)
    await desk.folded()
    assert (await desk.office.get(sent.id)).state is State.SEEN


@pytest.mark.requirement("mail-states-forward")
async def test_a_receipt_of_a_stranger_changes_nothing(desk: Desk):
    maria, mallory = await desk.person(), await desk.worker("mallory")
    await desk.worker("bob")
    sent = await desk.office.send(maria.uid, "@bob", "hello")
    await mallory.receipt(sent, State.SEEN)
    await desk.folded()
    assert (await desk.office.get(sent.id)).state is State.ACCEPTED


@pytest.mark.requirement("mail-offline-waits")
@pytest.mark.parametrize(
    "ref, error",
    [
        *((ref, UnknownRecipient) for ref in ("@nobody", "not a name", "postroom")),
        *((ref, NotLetIn) for ref in ("0" * 32, "@nobody.acme")),
    ],
)
async def test_a_message_to_nobody_is_refused_before_it_is_sent(
    desk: Desk, ref: str, error: type[PostroomError]
):
    maria = await desk.person()
    with pytest.raises(error):
        await desk.office.send(maria.uid, ref, "hello")
    assert await desk.admin.last_sequence("INBOX") == 0


async def test_a_message_that_is_too_large_is_refused_before_it_is_sent(desk: Desk):
    maria, _ = await desk.person(), await desk.worker("bob")
    with pytest.raises(MessageTooLarge):
        await desk.office.send(maria.uid, "@bob", "x" * MAX_ENVELOPE_BYTES)
    assert await desk.admin.last_sequence("INBOX") == 0


@pytest.mark.requirement("bus-ack-means-disk")
async def test_the_same_key_toward_the_same_recipient_is_the_same_message(desk: Desk):
    maria, _ = await desk.person(), await desk.worker("bob")
    first = await desk.office.send(maria.uid, "@bob", "hello", key="k")
    assert await desk.office.send(maria.uid, "@bob", "hello", key="k") == first
    assert await desk.admin.last_sequence("INBOX") == 1


async def test_the_same_key_toward_another_recipient_is_another_message(desk: Desk):
    maria = await desk.person()
    await desk.worker("bob")
    await desk.worker("eve")
    first = await desk.office.send(maria.uid, "@bob", "hello", key="k")
    assert (await desk.office.send(maria.uid, "@eve", "hello", key="k")).id != first.id


async def test_without_a_key_the_same_text_is_another_message(desk: Desk):
    maria, _ = await desk.person(), await desk.worker("bob")
    first = await desk.office.send(maria.uid, "@bob", "hello")
    assert (await desk.office.send(maria.uid, "@bob", "hello")).id != first.id


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("key", ["", "k"])
async def test_an_id_that_somebody_used_first_is_left_and_an_alert_raised(desk: Desk, key: str):
    maria, mallory = await desk.person(), await desk.worker("mallory")
    await desk.worker("bob")
    secret = await desk.directory.message_secret(maria.uid)
    bob = await desk.directory.resolve("@bob")
    taken = message_id(secret, bob.uid, key or "guessed")
    await mallory.store(mallory.uid, b"squat", taken)
    keys = iter(["guessed", "fresh"])
    desk.submitter._new_key = lambda: next(keys)

    sent = await desk.office.send(maria.uid, "@bob", "hello", key=key)

    assert sent.id != taken
    assert (await desk.admin.get("INBOX", sent.seq)).sender_uid == maria.uid
    alerts = await desk.changes.until(ALERTS, desk.alerts.standing, bool, SECONDS)
    assert alerts[0].row.kind == "suppressed"


async def test_a_post_can_be_read_at_once_by_its_project(desk: Desk):
    maria = await desk.person()
    posted = await desk.office.post(maria.uid, "main", "good morning")
    assert await desk.office.posts("main") == [posted]
    assert await desk.office.posts("other") == []


async def test_the_post_of_an_agent_is_folded(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob", ("main",))
    posted = await desk.office.post(maria.uid, "main", "good morning", key="k")
    assert await desk.office.post(maria.uid, "main", "good morning", key="k") == posted
    assert (await desk.office.posts("main", after=posted.seq)) == []
    assert bob.uid not in {post.sender.uid for post in await desk.office.posts("main")}


async def test_a_chat_holds_what_the_two_said_and_nothing_else(desk: Desk):
    maria, bob, eve = await desk.person(), await desk.worker("bob"), await desk.worker("eve")
    sent = await desk.office.send(maria.uid, "@bob", "hello")
    answer = await bob.send(maria.uid, "hi")
    other = await eve.send(bob.uid, "psst")
    for each in (answer, other):
        await desk.mail(each.id, State.ACCEPTED)
    ids = [mail.id for mail in await desk.office.chat(bob.uid, maria.uid)]
    assert ids == [sent.id, answer.id]
    later = await desk.office.chat(maria.uid, bob.uid, after=sent.seq)
    assert [mail.id for mail in later] == [answer.id]
    before = await desk.office.chat(maria.uid, bob.uid, before=later[0].seq)
    assert [mail.id for mail in before] == [sent.id]


async def test_a_reply_to_a_message_that_was_not_theirs_is_refused(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await desk.office.send(maria.uid, bob.uid, "hello")
    with pytest.raises(InvalidInput):
        await desk.office.send(maria.uid, bob.uid, "reply", reply_to=sent.id)


async def test_an_empty_message_is_refused(desk: Desk):
    maria, _ = await desk.person(), await desk.worker("bob")
    with pytest.raises(InvalidInput):
        await desk.office.send(maria.uid, "@bob", " \n")


async def test_a_retired_agent_can_send_nothing(desk: Desk):
    maria, _ = await desk.person(), await desk.worker("bob")
    await desk.directory.retire(maria.uid)
    with pytest.raises(NotFound):
        await desk.office.send(maria.uid, "@bob", "hello")


async def test_a_message_that_nobody_knows_is_not_found(desk: Desk):
    with pytest.raises(NotFound):
        await desk.office.wait("nothing", State.SEEN, 1.0)


@pytest.mark.requirement("mail-floods-contained")
async def test_a_full_inbox_refuses_with_a_type_and_takes_the_message_once_there_is_room(
    desk: Desk,
):
    maria, _ = await desk.person(), await desk.worker("bob")
    await desk.admin.ensure_stream(replace(BY_NAME["INBOX"], max_per_subject=1))
    first = await desk.office.send(maria.uid, "@bob", "one")
    with pytest.raises(StreamFull):
        await desk.office.send(maria.uid, "@bob", "two", key="k")
    await desk.admin.delete("INBOX", first.seq)
    second = await desk.office.send(maria.uid, "@bob", "two", key="k")
    assert (await desk.admin.get("INBOX", second.seq)).id == second.id


class SilentOnce:
    """A bus whose first answer to a publish gets lost after the record was stored."""

    def __init__(self, bus: MessageBusProvider) -> None:
        self._bus = bus
        self.lost = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    async def publish(self, subject: str, payload: bytes, **options: Any) -> Stored | None:
        stored = await self._bus.publish(subject, payload, **options)
        if not self.lost:
            self.lost = True
            raise RequestTimeout("no answer")
        return stored


@pytest.mark.requirement("bus-ack-means-disk")
async def test_a_lost_answer_of_the_log_makes_no_second_message_and_no_alert(desk: Desk):
    maria, _ = await desk.person(), await desk.worker("bob")
    desk.submitter._bus = SilentOnce(desk.bus)  # ty: ignore[invalid-assignment]
    sent = await desk.office.send(maria.uid, "@bob", "hello")
    assert (sent.seq, await desk.admin.last_sequence("INBOX")) == (1, 1)
    assert await desk.admin.last_sequence("ALERTS") == 0


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("error", [Refused("too many calls wait"), NoResponders("no leader")])
async def test_what_the_second_attempt_hears_says_nothing_of_the_first(
    desk: Desk, error: PostroomError
):
    maria, _ = await desk.person(), await desk.worker("bob")

    class ThenRefused(SilentOnce):
        async def publish(self, subject: str, payload: bytes, **options: Any) -> Stored | None:
            if self.lost:
                raise error
            return await super().publish(subject, payload, **options)

    desk.submitter._bus = ThenRefused(desk.bus)  # ty: ignore[invalid-assignment]
    with pytest.raises(RequestTimeout):
        await desk.office.send(maria.uid, "@bob", "hello")
    with pytest.raises(type(error)):  # nothing of it was sent
        await desk.office.send(maria.uid, "@bob", "more")
    assert await desk.admin.last_sequence("INBOX") == 1


async def test_before_the_fold_a_sent_message_is_returned_as_it_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.mail.office.FOLD_WAIT", 0.01)
    async with running_desk(tmp_path, fold=False) as desk:
        maria, _ = await desk.person(), await desk.worker("bob")
        sent = await desk.office.send(maria.uid, "@bob", "hello")
        assert (sent.state, sent.text, sent.seq) == (State.ACCEPTED, "hello", 1)
        posted = await desk.office.post(maria.uid, "main", "hello")
        assert (posted.text, posted.seq) == ("hello", 1)


async def test_a_project_is_one_that_somebody_was_in_or_has_posted_to(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob", ("demo", "lab"))
    assert await desk.office.projects() == ["demo", "lab", "main"]
    await desk.office.post(maria.uid, "news", "hello")
    await desk.directory.retire(bob.uid)
    assert await desk.office.projects() == ["demo", "lab", "main", "news"]


async def test_who_waits_for_an_answer_reads_at_most_once(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        asked = await desk.office.send(maria.uid, "@bob", "how are you?")
        reads, listening = desk.database.statistics().reads, desk.changes.listening
        waiting = asyncio.create_task(desk.office.wait(asked.id, State.ANSWERED, SECONDS))
        while desk.changes.listening == listening:  # noqa: ASYNC110 (nothing else shows it)
            await asyncio.sleep(0)
        await bob.receipt(asked, State.DELIVERED)
        await bob.receipt(asked, State.SEEN)
        await bob.send(maria.uid, "well", reply_to=asked.id)
        mail = await waiting
        assert mail.answer is not None
        assert (mail.state, mail.answer.text) == (State.ANSWERED, "well")
        assert desk.database.statistics().reads - reads <= 1
        assert mail == await desk.office.get(asked.id)
