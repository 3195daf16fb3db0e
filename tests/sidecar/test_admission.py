"""Which frames on a worker's rpc subject are read at all; no bus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from postroom.protocol import subjects
from postroom.sidecar.a2a import serving as rpc
from postroom.sidecar.a2a.serving import MAX_REQUEST, RATE, admission

OWN, ALICE, BOB = "a" * 32, "b" * 32, "c" * 32


def frame(sender: str, size: int = 0) -> Any:
    reply = subjects.reply(sender, OWN, "x")
    return SimpleNamespace(subject=subjects.rpc(OWN, sender), reply=reply, data=bytes(size))


@pytest.mark.requirement("core-busy-told")
def test_calls_of_one_caller_past_its_rate_are_not_read_and_those_of_others_are(
    monkeypatch: pytest.MonkeyPatch,
):
    now = 7.0
    monkeypatch.setattr(rpc.time, "monotonic", lambda: now)
    admit = admission(OWN)
    assert [admit(frame(ALICE)) for _ in range(RATE + 1)] == [ALICE] * RATE + [None]
    assert admit(frame(BOB)) == BOB
    now = 8.0
    assert admit(frame(ALICE)) == ALICE


def test_what_is_larger_than_any_call_is_not_read():
    admit = admission(OWN)
    assert admit(frame(ALICE, MAX_REQUEST)) == ALICE
    assert admit(frame(ALICE, MAX_REQUEST + 1)) is None
