"""The rules of the fold, as tables and properties; no bus."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.bus.port import Message
from postroom.protocol import subjects
from postroom.protocol.deadletters import DEAD_ATTEMPTS, DEAD_DROPPED, DEAD_ORIGIN, DEAD_REASON
from postroom.protocol.handover import as_reason
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import State
from tests.mail.log import (
    ALICE,
    BOB,
    EVE,
    Record,
    Rows,
    envelope,
    inbox,
    own_receipt,
    post,
    receipt,
)


def test_a_message_is_accepted_with_what_its_envelope_says():
    with Rows() as rows:
        (done,) = rows.fold(inbox(1, envelope("m", expects_reply=True, expires_at=9000.0)))
        row = rows.store.messages.message_of(ALICE, "m")
    assert row is not None
    assert (row.state, row.text, row.expects_reply, row.expires_at) == (
        "accepted",
        "text of m",
        True,
        9000.0,
    )
    assert [change.kind for change in done.changes] == ["mail"]


@pytest.mark.requirement("identity-sender-proved")
def test_the_sender_is_the_one_of_the_subject_and_never_of_the_payload():
    with Rows() as rows:
        body = envelope("m").encode().replace(b'"v":1', f'"v":1,"sender":"{EVE}"'.encode())
        rows.fold(inbox(1, body))
        assert rows.store.messages.message_of(ALICE, "m") is not None
        assert rows.store.messages.message_of(EVE, "m") is None


@pytest.mark.requirement("bus-ack-means-disk")
def test_the_second_record_of_one_sender_and_id_has_no_effect():
    with Rows() as rows:
        rows.fold(inbox(1, envelope("m")))
        before = rows.tables(without=["cursors"])
        (done,) = rows.fold(inbox(2, replace(envelope("m"), sent_at=2.0)))
        assert rows.tables(without=["cursors"]) == before
    assert (done.changes, done.ignored) == ((), 1)


def test_the_same_id_of_another_sender_is_another_message():
    with Rows() as rows:
        rows.fold(inbox(1, envelope("m")), inbox(2, envelope("m"), sender=EVE))
        assert len(rows.tables()["messages"]) == 2


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"junk",
        b"[]",
        b'{"v":1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"v":1,"id":"\\ud800"}',
        envelope("m", to=EVE).encode(),
    ],
)
def test_a_record_that_is_no_message_to_that_recipient_is_dead_malformed(payload: bytes):
    with Rows() as rows:
        rows.fold(inbox(1, payload), inbox(2, envelope("good")))
        assert rows.states() == {"malformed:1": "dead", "good": "accepted"}
        row = rows.store.messages.message_at(1)
    assert row is not None
    assert row.final
    assert row.reason.startswith("malformed")


def test_a_message_to_an_address_that_no_agent_can_have_is_dead():
    with Rows() as rows:
        rows.fold(inbox(1, envelope("m", to="nobody"), to="nobody"))
        row = rows.store.messages.message_at(1)
    assert row is not None
    assert (row.state, row.reason, row.final) == ("dead", "no such recipient", True)


@pytest.mark.requirement("mail-deadletter-moved")
@given(st.binary(max_size=200), st.sampled_from(["INBOX", "RECEIPTS", "FEED", "ALERTS"]))
def test_no_payload_stops_the_fold(payload: bytes, stream: str):
    subject = {
        "INBOX": subjects.inbox(BOB, ALICE),
        "RECEIPTS": subjects.receipts(ALICE, BOB),
        "FEED": subjects.feed("main", ALICE),
        "ALERTS": subjects.alerts(ALICE),
    }[stream]
    with Rows() as rows:
        rows.fold((stream, Message("", ALICE, subject, payload, {}, 1.0, 7)))
        assert rows.store.records.cursors.get(stream) == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["messageId", "parts", "contextId", "role"]), JSON), JSON, JSON
)
def test_no_message_inside_an_envelope_stops_the_fold(
    message: dict, expires_at: object, reply_to: object
):
    record = {
        "v": 1,
        "id": "m",
        "to": BOB,
        "sent_at": "2026-01-01T00:00:00Z",
        "message": message,
        "reply_to": reply_to,
        "expires_at": expires_at,
    }
    with Rows() as rows:
        rows.fold(inbox(1, json.dumps(record).encode()))
        assert len(rows.tables()["messages"]) == 1


# ── receipts ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_receipt_that_comes_before_its_message_counts_when_the_message_is_folded():
    with Rows() as rows:
        rows.fold(receipt(1, "m", State.SEEN), inbox(1, envelope("m")))
        assert rows.states() == {"m": "seen"}
        assert rows.tables()["early_receipts"] == []


@pytest.mark.requirement("mail-states-forward")
@pytest.mark.parametrize(
    "record",
    [
        receipt(1, "m", State.SEEN, setter=EVE),
        receipt(1, "m", State.SEEN, setter=EVE, recipient=EVE),
        receipt(1, "m", State.SEEN, sender=EVE),
        receipt(1, "other", State.SEEN),
        ("RECEIPTS", Message("", BOB, subjects.receipts(ALICE, BOB), b"junk", {}, 1.0, 1)),
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_a_receipt_counts_only_from_the_recipient_of_that_senders_message(
    record: Record, early: bool
):
    message = inbox(1, envelope("m"))
    with Rows() as rows:
        rows.fold(*((record, message) if early else (message, record)))
        assert rows.states() == {"m": "accepted"}


def test_what_the_post_office_declares_dead_keeps_its_reason():
    with Rows() as rows:
        rows.fold(inbox(1, envelope("m")), own_receipt(1, "m", State.DEAD, "expired"))
        row = rows.store.messages.message_at(1)
    assert row is not None
    assert (row.state, row.reason, row.final, row.updated_at) == ("dead", "expired", True, 2001.0)


@pytest.mark.requirement("sidecar-message-handed")
def test_why_a_message_stays_delivered_is_told_once_and_forgotten_when_it_is_seen():
    first, again = "not confirmed for 60 s", "not confirmed for 61 s"
    with Rows() as rows:

        def after(*records: Record) -> tuple[str, str, int]:
            changes = rows.fold(*records)
            row = rows.store.messages.message_at(1)
            assert row is not None
            return row.state, row.reason, len(changes or [])

        plain = receipt(1, "m", State.DELIVERED)
        assert after(inbox(1, envelope("m")), plain)[:2] == ("delivered", "")
        assert after(receipt(2, "m", State.DELIVERED, reason=first))[:2] == ("delivered", first)
        assert after(receipt(3, "m", State.DELIVERED, reason=again))[:2] == ("delivered", first)
        assert after(receipt(4, "m", State.DELIVERED))[:2] == ("delivered", first)
        assert after(receipt(5, "m", State.SEEN))[:2] == ("seen", "")
        assert after(receipt(6, "m", State.DELIVERED, reason=again))[:2] == ("seen", "")


@pytest.mark.requirement("session-mail-told")
@pytest.mark.parametrize("final", [State.SEEN, State.ANSWERED])
def test_how_a_message_was_delivered_stays_until_it_is_dead(final: State):
    by = as_reason("hook PostToolBatch")
    with Rows() as rows:

        def after(*records: Record) -> tuple[str, str]:
            rows.fold(*records)
            row = rows.store.messages.message_at(1)
            assert row is not None
            return row.state, row.reason

        asked = inbox(1, envelope("m", expects_reply=True))
        assert after(asked, receipt(1, "m", State.DELIVERED, reason=by)) == ("delivered", by)
        assert after(receipt(2, "m", State.DELIVERED, reason="by tool")) == ("delivered", by)
        assert after(receipt(3, "m", State.SEEN, reason="by tool")) == ("seen", by)
        assert after(own_receipt(4, "m", final))[1] == by
        if final is State.SEEN:
            assert after(own_receipt(5, "m", State.DEAD, "expired")) == ("dead", "expired")


@pytest.mark.requirement("mail-states-forward")
def test_of_two_final_states_the_first_in_the_log_stays():
    with Rows() as rows:
        rows.fold(
            inbox(1, envelope("m", expects_reply=True)),
            own_receipt(1, "m", State.ANSWERED),
            own_receipt(2, "m", State.DEAD, "expired"),
        )
        assert rows.states() == {"m": "answered"}


REPORTS = st.lists(
    st.tuples(st.sampled_from(["m", "n"]), st.sampled_from(list(State)), st.booleans()), max_size=8
)


@pytest.mark.requirement("mail-rebuild-equal")
@given(REPORTS, st.booleans(), st.data())
def test_however_receipts_and_messages_interleave_and_repeat_the_rows_are_the_same(
    reports: list[tuple[str, State, bool]], expects_reply: bool, data: st.DataObject
):
    sent = [inbox(n, envelope(i, expects_reply=expects_reply)) for n, i in enumerate("mn", 1)]
    told = [
        (own_receipt if own else receipt)(seq, message, state)
        for seq, (message, state, own) in enumerate(reports, 1)
    ]
    with Rows() as in_turn:
        in_turn.fold(*sent, *told)
        wanted = in_turn.tables()
    with Rows() as mixed:
        waiting = [list(sent), list(told)]
        seen: list[Record] = []
        while any(waiting):
            stream = data.draw(st.sampled_from([records for records in waiting if records]))
            seen.append(stream.pop(0))
            mixed.fold(seen[-1])
            mixed.fold(data.draw(st.sampled_from(seen)))
        assert mixed.tables() == wanted


@pytest.mark.requirement("mail-rebuild-equal")
@given(REPORTS)
def test_no_state_ever_goes_back(reports: list[tuple[str, State, bool]]):
    order = ["accepted", "delivered", "seen", "answered", "dead"]
    with Rows() as rows:
        rows.fold(inbox(1, envelope("m", expects_reply=True)))
        state = "accepted"
        for seq, (_, reported, own) in enumerate(reports, 1):
            rows.fold((own_receipt if own else receipt)(seq, "m", reported))
            now = rows.states()["m"]
            assert order.index(now) >= order.index(state)
            assert now == state or state not in {"answered", "dead"}
            state = now


# ── posts, dead letters, alerts ─────────────────────────────────────────────────────────────────────────────


def test_a_post_is_folded_once_and_only_into_the_project_of_its_subject():
    with Rows() as rows:
        rows.fold(
            post(1, envelope("p", to="#main")),
            post(2, envelope("p", to="#main")),
            post(3, envelope("q", to="#other")),
            post(4, b"junk"),
        )
        found = rows.store.records.project_posts("main", limit=10)
    assert [(row.seq, row.id, row.sender) for row in found] == [(1, "p", ALICE)]


def dead(seq: int, origin: str, payload: bytes, **headers: str) -> Record:
    subject = subjects.deadletter(subjects.inbox(BOB, ALICE))
    given_headers = {
        DEAD_ORIGIN: origin,
        DEAD_REASON: "undeliverable: 3 attempts",
        DEAD_ATTEMPTS: "3",
    }
    return "DEADLETTER", Message("", "", subject, payload, given_headers | headers, 1.0, seq)


def test_a_dead_letter_is_folded_once_for_each_failed_delivery():
    with Rows() as rows:
        body = envelope("m").encode()
        rows.fold(dead(1, "INBOX-1-x", body), dead(2, "INBOX-1-x", body))
        (row,) = rows.store.records.dead_letters(10)
    assert (row.message_id, row.sender, row.recipient, row.attempts) == ("m", ALICE, BOB, 3)


def test_a_dead_letter_that_is_no_envelope_keeps_its_bytes():
    with Rows() as rows:
        rows.fold(dead(1, "INBOX-1-x", b"junk"))
        (row,) = rows.store.records.dead_letters(10)
    assert (row.message_id, row.payload) == ("", b"junk")


def test_a_dropped_dead_letter_is_not_listed():
    with Rows() as rows:
        rows.fold(dead(1, "INBOX-1-x", b"junk"), dead(2, "", b"", **{DEAD_DROPPED: "1"}))
        assert rows.store.records.dead_letters(10) == []
        assert rows.store.records.count_dead_letters() == 0


@pytest.mark.parametrize("sender, about", [(CONTROL_PLANE, "x/m"), (ALICE, "")])
def test_what_an_alert_is_about_only_the_post_office_says(sender: str, about: str):
    payload = b'{"v":1,"text":"help","kind":"stale","about":"x/m"}'
    with Rows() as rows:
        rows.fold(("ALERTS", Message("", sender, subjects.alerts(sender), payload, {}, 1.0, 1)))
        (row,) = rows.store.alerts.newest(10)
    assert (row.text, row.about) == ("help", about)


def test_an_alert_that_is_plain_text_is_taken_as_its_own_text():
    with Rows() as rows:
        rows.fold(("ALERTS", Message("", ALICE, subjects.alerts(ALICE), b"he\x1blp", {}, 1.0, 1)))
        (row,) = rows.store.alerts.newest(10)
    assert row.text == "help"


def test_a_record_below_the_cursor_is_not_folded_again():
    with Rows() as rows:
        rows.fold(inbox(5, envelope("m")))
        rows.fold(inbox(4, envelope("n")))
        assert rows.states() == {"m": "accepted"}
