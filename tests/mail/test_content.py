"""Whole messages in the post office: parts, subject and thread come back as they were said, or nothing was sent."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.port import Delivery
from postroom.errors import ContentNotTaken, InvalidInput, MessageTooLarge
from postroom.mail.views import Mail
from postroom.projection.changes import DEADLETTERS
from postroom.protocol.blobs import blob_url
from postroom.protocol.content import SUBJECT, Content
from postroom.protocol.envelope import MAX_ENVELOPE_BYTES, Envelope
from postroom.protocol.receipts import State
from postroom.store.agents import Agent
from postroom.store.blobs import EVERYBODY, BlobRow
from tests.mail.desk import NOW, SECONDS, Desk, Worker, running, running_desk

pytestmark = pytest.mark.anyio

SHA = "ab" * 32
PDF = {"url": blob_url(SHA), "mediaType": "application/pdf", "filename": "report.pdf"}
PARTS: tuple[dict[str, Any], ...] = (
    {"text": "see the table"},
    {"data": {"rows": [1, None, "\x1b[31m"]}, "mediaType": "application/vnd.table+json"},
    {"raw": base64.b64encode(bytes(range(256))).decode(), "filename": "all.bin"},
    PDF | {"metadata": {"page": 3}, "tomorrow": {"kept": True}},
)
WHOLE = Content(PARTS, "Table of Monday", "monday-7")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with running_desk(tmp_path) as running:
        yield running


async def blob(desk: Desk, reader: str = EVERYBODY, sha256: str = SHA) -> None:
    row = BlobRow(sha256, 12_345, "application/pdf", NOW, NOW)
    await desk.database.write(lambda store: store.blobs.store_blob(row, reader))


async def pair(desk: Desk) -> tuple[Agent, Worker]:
    await blob(desk)
    return await desk.person(), await desk.worker("bob")


def cards(desk: Desk, *modes: str) -> None:
    """From now on every agent has a card with these modes."""

    async def of(uid: str) -> dict[str, dict[str, Any]]:
        return {uid: {"defaultInputModes": list(modes), "skills": []}}

    desk.office._takers.cards = of


@pytest.mark.requirement("mail-content-whole")
async def test_every_part_the_subject_and_the_thread_come_back_as_they_were_said(desk: Desk):
    maria, bob = await pair(desk)
    sent = await desk.office.send(maria.uid, "@bob", WHOLE, folded=False)
    for mail in (sent, await desk.office.get(sent.id), (await desk.inboxes.newest(bob.uid))[0]):
        shown = mail.as_json()
        assert shown["parts"] == list(PARTS)
        assert (shown["text"], shown["subject"], shown["thread"]) == (
            "see the table",
            "Table of Monday",
            "monday-7",
        )
        assert shown["files"] == [PDF | {"size": 12_345}]
    record = await desk.admin.get("INBOX", sent.seq)
    message = Envelope.decode(record.payload).message
    assert message["parts"] == list(PARTS)
    assert message["metadata"] == {SUBJECT: "Table of Monday"}
    assert message["contextId"] == "monday-7"


async def test_a_post_has_all_of_it_too(desk: Desk):
    maria, _ = await pair(desk)
    posted = await desk.office.post(maria.uid, "main", WHOLE)
    (read,) = await desk.office.posts("main")
    assert posted.as_json() == read.as_json()
    assert read.as_json()["parts"] == list(PARTS)
    assert (read.as_json()["subject"], read.as_json()["thread"]) == ("Table of Monday", "monday-7")
    assert read.as_json()["files"] == [PDF | {"size": 12_345}]


async def test_a_wait_for_an_answer_knows_the_sizes_of_its_files(desk: Desk):
    maria, bob = await pair(desk)
    await blob(desk, bob.uid, "cd" * 32)
    sent = await desk.office.send(maria.uid, "@bob", "a table, please")
    part = {"url": blob_url("cd" * 32)}
    await desk.office.send(bob.uid, "@maria", Content((part,)), reply_to=sent.id)
    answered = await desk.office.wait(sent.id, State.ANSWERED, SECONDS)
    assert answered.answer is not None
    assert answered.answer.as_json()["files"][0]["size"] == 12_345


async def test_a_reply_stays_in_its_thread(desk: Desk):
    maria, bob = await pair(desk)
    sent = await desk.office.send(maria.uid, "@bob", WHOLE)
    reply = await desk.office.send(bob.uid, "@maria", "got it", reply_to=sent.id)
    other = await desk.office.send(
        bob.uid, "@maria", Content.of_text("apart", thread="tuesday"), reply_to=sent.id
    )
    assert (reply.thread, other.thread) == ("monday-7", "tuesday")


@pytest.mark.requirement("mail-content-whole")
async def test_what_a_card_does_not_take_is_refused_before_anything_is_stored(desk: Desk):
    maria, bob = await pair(desk)
    cards(desk, "text/plain")
    with pytest.raises(ContentNotTaken) as caught:
        await desk.office.send(maria.uid, "@bob", WHOLE)
    assert "@bob does not take part 2: data, application/vnd.table+json" in str(caught.value)
    assert "text/plain" in str(caught.value)
    assert await desk.admin.last_sequence("INBOX") == 0
    await desk.office.send(maria.uid, "@bob", "a text")
    await desk.office.send(bob.uid, "@maria", WHOLE)  # people read everything


@pytest.mark.requirement("mail-content-whole")
@pytest.mark.parametrize(
    "parts",
    [
        ({"url": blob_url("ef" * 32)},),
        ({"text": "x"}, {"url": "blob:sha256:short"}),
        ({"hologram": 1},),
        ({"text": "x", "data": 1},),
        ({"raw": "no base64"},),
        (),
        ({"text": " "},),
    ],
)
async def test_parts_that_would_reach_nobody_are_refused(desk: Desk, parts: tuple[Any, ...]):
    _, bob = await pair(desk)
    with pytest.raises(InvalidInput):
        await desk.office.send(bob.uid, "@maria", Content(parts))
    with pytest.raises(InvalidInput):
        await desk.office.post(bob.uid, "main", Content(parts))
    assert await desk.admin.last_sequence("INBOX") == 0
    assert await desk.admin.last_sequence("FEED") == 0


async def test_a_blob_of_others_cannot_be_passed_on_by_its_hash(desk: Desk):
    maria, bob = await desk.person(), await desk.worker("bob")
    await blob(desk, maria.uid)
    with pytest.raises(InvalidInput, match="part 1 names a blob"):
        await desk.office.send(bob.uid, "@maria", Content((PDF,)))
    assert (await desk.office.send(maria.uid, "@bob", Content((PDF,)))).state is State.ACCEPTED


@pytest.mark.parametrize(
    "subject", ["two\nlines", "a\x1b[31m", " padded", "x" * 201, "a\u202eb", "tab\there"]
)
async def test_a_subject_is_one_line_that_acts_on_nothing(desk: Desk, subject: str):
    maria, _ = await pair(desk)
    with pytest.raises(InvalidInput, match="a subject is one line"):
        await desk.office.send(maria.uid, "@bob", Content.of_text("hi", subject=subject))


async def test_a_hostile_subject_on_the_bus_is_cut_to_a_line(desk: Desk):
    maria, bob = await pair(desk)
    message = {
        "messageId": "m1",
        "parts": [{"text": "x"}],
        "metadata": {SUBJECT: "a\nb\x1b[2Jc" + "d" * 999},
    }
    await bob.store(maria.uid, Envelope("m1", maria.uid, message, NOW).encode(), "m1")
    await desk.folded()
    mail = await desk.office.get("m1")
    assert mail.subject.startswith("a bc")
    assert len(mail.subject) == 200


async def test_a_kind_of_part_from_the_future_is_shown_to_its_reader(desk: Desk):
    maria, bob = await pair(desk)
    newer = {"hologram": {"depth": 3}, "mediaType": "model/holo"}
    message = {"messageId": "m1", "parts": [newer, "no part", {}, {"text": 7}, {"text": "x"}]}
    await bob.store(maria.uid, Envelope("m1", maria.uid, message, NOW).encode(), "m1")
    await desk.folded()
    assert (await desk.office.get("m1")).as_json()["parts"] == [newer, {"text": "x"}]


async def test_all_parts_count_toward_the_size_of_a_message(desk: Desk):
    maria, _ = await pair(desk)
    half = {"text": "x" * (MAX_ENVELOPE_BYTES // 2)}
    with pytest.raises(MessageTooLarge) as caught:
        await desk.office.send(maria.uid, "@bob", Content((half, half)))
    assert "--file" in caught.value.remedy


@pytest.mark.requirement("mail-content-whole")
async def test_a_requeued_letter_is_whole(desk: Desk):
    maria, bob = await pair(desk)

    async def terminate(delivery: Delivery) -> None:
        await delivery.term("cannot read this")

    async with running(desk.mover.run()):
        await desk.office.send(maria.uid, "@bob", WHOLE)
        subscription = await bob.bus.consume("INBOX", bob.uid, terminate)
        (letter,) = await desk.changes.until(DEADLETTERS, desk.dead.all, bool, SECONDS)
        await subscription.close()
    shown = letter.as_json()
    assert (shown["parts"], shown["subject"], shown["thread"]) == (
        list(PARTS),
        "Table of Monday",
        "monday-7",
    )
    assert shown["files"] == [PDF | {"size": 12_345}]
    again = await desk.office.get(await desk.dead.requeue(letter.id))
    assert (again.as_json()["parts"], again.subject, again.thread) == (
        list(PARTS),
        "Table of Monday",
        "monday-7",
    )


# ── search ──────────────────────────────────────────────────────────────────────────────────────────────────


async def correspondence(desk: Desk) -> tuple[Agent, Worker, Worker]:
    maria, bob, eve = await desk.person(), await desk.worker("bob"), await desk.worker("eve")
    say = desk.office.send
    await say(maria.uid, "@bob", Content.of_text("The invoice is wrong", thread="t1"))
    await say(bob.uid, "@maria", Content.of_text("100% sure?", thread="t1", subject="Invoice"))
    await say(bob.uid, "@eve", Content.of_text("their invoice, between us", thread="t2"))
    await say(maria.uid, "@eve", "good morning")
    return maria, bob, eve


def texts(mails: list[Mail]) -> list[str]:
    return [mail.text.split()[0] for mail in mails]


@pytest.mark.requirement("mail-search-own")
async def test_a_search_finds_words_threads_and_parties_newest_first(desk: Desk):
    maria, bob, eve = await correspondence(desk)
    search = desk.office.search
    assert texts(await search("INVOICE")) == ["their", "100%", "The"]
    assert texts(await search("wrong invoice")) == ["The"]
    assert texts(await search("100%")) == ["100%"]
    assert texts(await search("1_0%")) == []
    assert texts(await search(thread="t1")) == ["100%", "The"]
    assert texts(await search(other=eve.uid)) == ["good", "their"]
    assert texts(await search(other=eve.uid, seer=maria.uid)) == ["good"]
    assert texts(await search("invoice", seer=maria.uid)) == ["100%", "The"]
    assert texts(await search("invoice", thread="t2", seer=bob.uid)) == ["their"]
    assert texts(await search("invoice", thread="t2", seer=maria.uid)) == []


async def test_posts_of_a_project_are_found_by_their_words_however_many_came_since(desk: Desk):
    maria = await desk.person()
    for text in ("Release on FRIDAY", "100% sure", *(f"noise {n}" for n in range(5))):
        await desk.office.post(maria.uid, "web", text)
    await desk.office.post(maria.uid, "api", "release on friday, too")

    async def found(text: str, **more: int) -> list[str]:
        return [post.text for post in await desk.office.search_posts("web", text, **more)]

    assert await found("friday release") == ["Release on FRIDAY"]
    assert await found("100%") == ["100% sure"]
    assert await found("1_0%") == []
    assert await found("noise", limit=2) == ["noise 3", "noise 4"]
    first = (await desk.office.search_posts("web", "noise", limit=2))[0]
    assert await found("noise", limit=2, before=first.seq) == ["noise 1", "noise 2"]
    with pytest.raises(InvalidInput):
        await found("a\0b")


async def test_a_search_is_read_page_by_page(desk: Desk):
    await correspondence(desk)
    first = await desk.office.search(limit=3)
    assert texts(first) == ["good", "their", "100%"]
    assert texts(await desk.office.search(limit=3, before=first[-1].seq)) == ["The"]


async def test_a_search_that_no_database_answers_is_refused(desk: Desk):
    for text, thread in (("a\0b", ""), ("", "\0")):
        with pytest.raises(InvalidInput, match="no NUL"):
            await desk.office.search(text, thread=thread)


async def test_a_search_for_too_many_words_is_refused(desk: Desk):
    with pytest.raises(InvalidInput, match="at most 16 words"):
        await desk.office.search("a " * 17)
