"""Presence: what a worker says of itself is a claim, and never more than a state and two short lines."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import ProtocolViolation
from postroom.protocol.presence import Presence, WorkerState
from tests.protocol.records import is_storable, payloads

VALID: dict[str, Any] = {
    "v": 1,
    "state": "idle",
    "at": 1_769_860_800.5,
    "started_at": 1_769_860_000.0,
    "detail": "exit code 1",
    "sandbox": "enforced",
    "waiting": 3,
}


@given(
    st.builds(
        Presence,
        state=st.sampled_from(WorkerState),
        at=st.floats(0, 4e9),
        started_at=st.floats(0, 4e9),
        detail=st.sampled_from(["", "exit code 1"]),
        sandbox=st.sampled_from(["", "enforced", "partial", "none"]),
        waiting=st.integers(0, 16),
    )
)
def test_a_status_survives_the_wire(presence: Presence):
    assert Presence.decode(presence.encode()) == presence


@pytest.mark.requirement("mail-deadletter-moved")
@given(payloads(VALID))
def test_any_payload_is_a_status_that_can_be_answered_or_a_violation(payload: bytes):
    try:
        presence = Presence.decode(payload)
    except ProtocolViolation:
        return
    assert is_storable(asdict(presence))
    assert presence.waiting >= 0


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize(
    "changed",
    [
        {"state": "busy"},
        {"state": []},
        {"at": float("nan")},
        {"at": 10**400},
        {"at": -1.0},
        {"at": 1e12},
        {"started_at": float("-inf")},
        {"started_at": None},
        {"waiting": float("inf")},
        {"waiting": -1},
        {"waiting": "many"},
    ],
    ids=str,
)
def test_a_member_of_a_status_that_breaks_its_rule_is_a_violation(changed: dict[str, Any]):
    with pytest.raises(ProtocolViolation):
        Presence.decode(json.dumps({**VALID, **changed}).encode())


@pytest.mark.requirement("text-controls-stripped")
def test_what_a_worker_says_in_detail_is_one_short_printable_line():
    hostile = {**VALID, "detail": "\x1b[2Jx\n" * 200, "sandbox": "enforced\u202e" * 20}
    presence = Presence.decode(json.dumps(hostile).encode())

    assert presence.detail.startswith("x x")
    assert len(presence.detail) <= 200
    assert "\u202e" not in presence.sandbox
    assert len(presence.sandbox) <= 20
