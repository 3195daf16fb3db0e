"""Receipts: a state moves forward or not at all, whoever reports in whatever order."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import ProtocolViolation
from postroom.protocol.receipts import (
    RANK,
    TRANSITIONS,
    Receipt,
    State,
    advance,
    is_final,
    may_set,
    reached,
)
from tests.protocol.records import is_storable, payloads

UID = "0123456789abcdef" * 2
VALID: dict[str, Any] = {
    "v": 1,
    "message_id": "a1",
    "recipient": UID,
    "state": "dead",
    "at": 1_769_860_800.5,
    "reason": "expired",
}
states = st.sampled_from(State)
reports = st.lists(states, max_size=12)


def _fold(reported: list[State], *, expects_reply: bool) -> State:
    current = State.ACCEPTED
    for new in reported:
        current = advance(current, new, expects_reply=expects_reply)
    return current


@pytest.mark.requirement("mail-states-forward")
@given(states, states, st.booleans())
def test_no_report_moves_a_state_back(current: State, new: State, expects_reply: bool):
    after = advance(current, new, expects_reply=expects_reply)

    assert RANK[after] >= RANK[current]
    assert after is current or after in TRANSITIONS[current]


@pytest.mark.requirement("mail-states-forward")
@given(reports, reports, st.booleans())
def test_after_a_final_state_nothing_changes(
    first: list[State], late: list[State], expects_reply: bool
):
    final = _fold(first, expects_reply=expects_reply)
    if is_final(final, expects_reply=expects_reply):
        assert _fold(first + late, expects_reply=expects_reply) is final


@pytest.mark.requirement("mail-states-forward")
@given(reports, st.booleans())
def test_a_report_that_comes_twice_changes_nothing(reported: list[State], expects_reply: bool):
    twice = [state for state in reported for _ in range(2)]

    assert _fold(twice, expects_reply=expects_reply) is _fold(reported, expects_reply=expects_reply)


@pytest.mark.requirement("mail-states-forward")
@given(st.lists(st.sampled_from([s for s in State if s is not State.DEAD])), st.data())
def test_reports_of_a_living_message_lead_to_one_state_in_any_order(
    reported: list[State], data: st.DataObject
):
    shuffled = data.draw(st.permutations(reported))

    for expects_reply in (True, False):
        assert _fold(shuffled, expects_reply=expects_reply) is _fold(
            reported, expects_reply=expects_reply
        )


@pytest.mark.requirement("mail-states-forward")
@pytest.mark.parametrize(
    "expects_reply, final",
    [(True, {State.ANSWERED, State.DEAD}), (False, {State.SEEN, State.ANSWERED, State.DEAD})],
)
def test_a_message_is_final_answered_or_dead_or_seen_if_it_expects_no_reply(
    expects_reply: bool, final: set[State]
):
    assert {s for s in State if is_final(s, expects_reply=expects_reply)} == final


@pytest.mark.requirement("mail-states-forward")
@given(reports)
def test_a_message_that_expects_no_reply_never_becomes_answered(reported: list[State]):
    assert _fold(reported, expects_reply=False) is not State.ANSWERED


@pytest.mark.requirement("mail-states-forward")
def test_from_each_state_a_final_one_can_be_reached():
    for state in State:
        assert is_final(state, expects_reply=True) or any(
            is_final(following, expects_reply=True) for following in TRANSITIONS[state]
        )


@pytest.mark.requirement("mail-states-forward")
@given(states, states)
def test_a_message_has_reached_each_state_up_to_its_own(current: State, wanted: State):
    if State.DEAD in (current, wanted):
        assert reached(current, wanted) == (current is wanted)
    else:
        order = [State.ACCEPTED, State.DELIVERED, State.SEEN, State.ANSWERED]
        assert reached(current, wanted) == (order.index(current) >= order.index(wanted))


@pytest.mark.requirement("mail-states-forward")
def test_only_the_recipient_and_the_control_plane_report_on_a_message():
    assert may_set("anna", "anna", "postroom")
    assert may_set("postroom", "anna", "postroom")
    assert not may_set("bert", "anna", "postroom")
    assert not may_set("", "anna", "postroom")


@given(
    st.builds(
        Receipt,
        message_id=st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
        recipient=st.just(UID),
        state=states,
        at=st.floats(0, 4e9),
        reason=st.sampled_from(["", "expired", "undeliverable: exit code 1"]),
    )
)
def test_a_receipt_survives_the_wire(receipt: Receipt):
    assert Receipt.decode(receipt.encode()) == receipt


@pytest.mark.requirement("mail-deadletter-moved")
@given(payloads(VALID))
def test_any_payload_is_a_receipt_that_can_be_stored_or_a_violation(payload: bytes):
    try:
        receipt = Receipt.decode(payload)
    except ProtocolViolation:
        return
    assert is_storable(asdict(receipt))


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize(
    "changed",
    [
        {"state": "read"},
        {"state": None},
        {"at": "soon"},
        {"at": float("nan")},
        {"at": float("inf")},
        {"at": 10**400},
        {"at": 1e12},
        {"message_id": "a.b"},
        {"message_id": "\ud800"},
        {"message_id": None},
        {"recipient": "a b"},
        {"recipient": "\ud800"},
        {"recipient": ""},
    ],
    ids=str,
)
def test_a_member_of_a_receipt_that_breaks_its_rule_is_a_violation(changed: dict[str, Any]):
    with pytest.raises(ProtocolViolation):
        Receipt.decode(json.dumps({**VALID, **changed}).encode())


@pytest.mark.requirement("text-controls-stripped")
def test_the_reason_of_a_receipt_is_one_short_printable_line():
    hostile = {**VALID, "reason": "\x1b[2J" + "long\n" * 1000}
    reason = Receipt.decode(json.dumps(hostile).encode()).reason

    assert reason.startswith("long long")
    assert len(reason) <= 500
