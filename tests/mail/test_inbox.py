"""An inbox that its reader polls: what it gives, gives again, and takes as acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.directory.presence import Callers
from postroom.mail.views import Mail
from postroom.protocol.receipts import State
from postroom.store.agents import Agent
from tests.mail.desk import NOW, SECONDS, Desk, running_desk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with running_desk(tmp_path) as running:
        yield running


async def outsider(desk: Desk) -> Agent:
    return await desk.directory.register("otto", "external")


def texts(mails: list[Mail]) -> list[str]:
    return [mail.text for mail in mails]


def again(mails: list[Mail]) -> list[bool]:
    return [mail.redelivered for mail in mails]


@pytest.mark.requirement("inbox-confirmed-only")
async def test_what_is_given_stays_accepted_until_its_reader_acknowledges_it(desk: Desk):
    maria, otto = await desk.person(), await outsider(desk)
    sent = await desk.office.send(maria.uid, "@otto", "hello")

    (given,) = await desk.inboxes.past(otto.uid, 0, unread=True)
    assert (given.id, given.state, given.redelivered) == (sent.id, State.ACCEPTED, False)
    assert (await desk.office.get(sent.id)).state is State.ACCEPTED

    done = await desk.inboxes.acknowledge(otto.uid, [sent.id], State.DELIVERED)
    assert [mail.state for mail in done.mails] == [State.DELIVERED]
    done = await desk.inboxes.acknowledge(otto.uid, [sent.id], State.SEEN)
    assert [mail.state for mail in done.mails] == [State.SEEN]
    assert (await desk.office.get(sent.id)).state is State.SEEN


@pytest.mark.requirement("inbox-confirmed-only")
async def test_what_was_not_acknowledged_as_seen_is_given_again_and_flagged(desk: Desk):
    maria, otto = await desk.person(), await outsider(desk)
    sent = [await desk.office.send(maria.uid, "@otto", text) for text in ("one", "two", "three")]

    assert again(await desk.inboxes.past(otto.uid, 0, unread=True)) == [False] * 3
    await desk.inboxes.acknowledge(otto.uid, [sent[0].id], State.SEEN)
    await desk.inboxes.acknowledge(otto.uid, [sent[1].id], State.DELIVERED)
    await desk.office.send(maria.uid, "@otto", "four")

    found = await desk.inboxes.past(otto.uid, 0, unread=True)
    assert texts(found) == ["two", "three", "four"]
    assert again(found) == [True, True, False]
    assert texts(await desk.inboxes.past(otto.uid, found[1].seq, unread=True)) == ["four"]


@pytest.mark.requirement("inbox-confirmed-only")
async def test_what_an_earlier_process_may_have_given_is_flagged(desk: Desk):
    maria, otto, paul = await desk.person(), await outsider(desk), await desk.person("paul")
    for nick in ("otto", "paul"):
        await desk.office.send(maria.uid, f"@{nick}", "before")
    assert again(await desk.inboxes.past(otto.uid, 0, unread=True)) == [False]

    callers = Callers(desk.database, desk.directory)
    await callers.open()
    later = desk.new_inboxes(callers)
    await later.open()
    assert again(await later.past(otto.uid, 0, unread=True)) == [True]
    assert again(await later.past(paul.uid, 0, unread=True)) == [False]
    await desk.office.send(maria.uid, "@otto", "after")
    assert again(await later.past(otto.uid, 0, unread=True)) == [True, False]


async def test_of_two_readers_at_once_the_second_is_told(desk: Desk):
    maria, otto = await desk.person(), await outsider(desk)
    readers = [
        asyncio.create_task(desk.inboxes.past(otto.uid, 0, unread=True, wait=SECONDS))
        for _ in range(2)
    ]
    await asyncio.sleep(0)  # both listen
    sent = await desk.office.send(maria.uid, "@otto", "hello")
    (one,), (other,) = await asyncio.gather(*readers)
    assert sorted([one.redelivered, other.redelivered]) == [False, True]

    both = [desk.inboxes.acknowledge(otto.uid, [sent.id], State.SEEN) for _ in range(2)]
    for done in await asyncio.gather(*both):
        assert [mail.state for mail in done.mails] == [State.SEEN]


async def test_a_reader_that_waits_is_woken_by_a_message_to_it_alone(desk: Desk):
    maria, otto = await desk.person(), await outsider(desk)
    bob = await desk.worker("bob")
    waiting = asyncio.create_task(desk.inboxes.past(otto.uid, 0, unread=True, wait=SECONDS))
    await desk.office.send(maria.uid, bob.uid, "not for otto")
    await desk.office.send(otto.uid, bob.uid, "from otto")
    assert not waiting.done()
    await bob.send(otto.uid, "for otto")
    assert texts(await waiting) == ["for otto"]


async def test_a_wait_without_a_message_ends(desk: Desk):
    otto = await outsider(desk)
    assert await desk.inboxes.past(otto.uid, 0, wait=0.01) == []


async def test_an_expired_message_is_not_given(tmp_path: Path):
    async with running_desk(tmp_path) as desk:
        maria, otto = await desk.person(), await outsider(desk)
        sent = await desk.office.send(maria.uid, "@otto", "soon old", expires_in=100.0)
        late = desk.new_inboxes(clock=lambda: sent.sent_at + 101.0)
        assert await late.past(otto.uid, 0, unread=True) == []
        assert texts(await desk.inboxes.past(otto.uid, 0, unread=True)) == ["soon old"]


async def test_a_reply_answers_and_ends_what_it_answers(desk: Desk):
    maria, otto = await desk.person(), await outsider(desk)
    asked = await desk.office.send(maria.uid, "@otto", "well?")
    await desk.office.send(otto.uid, "@maria", "yes", reply_to=asked.id, expects_reply=False)
    done = await desk.office.wait(asked.id, State.ANSWERED, SECONDS)
    assert (done.state, done.answer and done.answer.text) == (State.ANSWERED, "yes")
    assert await desk.inboxes.past(otto.uid, 0, unread=True) == []
    # An acknowledgement that comes late changes nothing.
    late = await desk.inboxes.acknowledge(otto.uid, [asked.id], State.DELIVERED)
    assert [mail.state for mail in late.mails] == [State.ANSWERED]


async def test_nobody_acknowledges_the_message_of_another(desk: Desk):
    maria, otto = await desk.person(), await outsider(desk)
    bob = await desk.worker("bob")
    sent = await desk.office.send(maria.uid, bob.uid, "hello")
    done = await desk.inboxes.acknowledge(otto.uid, [sent.id, "nonsense"], State.SEEN)
    assert (list(done.mails), list(done.unknown)) == ([], [sent.id, "nonsense"])
    assert (await desk.office.get(sent.id)).state is State.ACCEPTED


async def test_two_messages_under_one_id_are_both_acknowledged(desk: Desk):
    otto = await outsider(desk)
    bob, eve = await desk.worker("bob"), await desk.worker("eve")
    first = await bob.send(otto.uid, "mine")
    await desk.folded()
    # The same id, past the server's window of de-duplication.
    await eve.store(otto.uid, first.encode(), f"{NOW}")
    await desk.folded()
    done = await desk.inboxes.acknowledge(otto.uid, [first.id], State.SEEN)
    assert {mail.sender.nick for mail in done.mails} == {"bob", "eve"}
    assert {mail.state for mail in done.mails} == {State.SEEN}


@pytest.mark.requirement("mail-states-forward")
async def test_a_person_says_that_a_message_was_read(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    sent = await bob.send(maria.uid, "done")
    await desk.mail(sent.id, State.ACCEPTED)
    assert await desk.office.unread([maria.uid]) == {maria.uid: 1}
    (seen,) = (await desk.inboxes.acknowledge(maria.uid, [sent.id], State.SEEN)).mails
    assert seen.state is State.SEEN
    assert await desk.office.unread([maria.uid]) == {maria.uid: 0}
    assert await desk.inboxes.newest(maria.uid, unread=True) == []
    assert [mail.id for mail in await desk.inboxes.newest(maria.uid)] == [sent.id]
