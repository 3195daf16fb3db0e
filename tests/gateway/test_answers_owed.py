"""What a worker may send to an agent that is reached by grants alone: an answer for each message of that."""

from __future__ import annotations

import pytest

from postroom.gateway.connection import KEPT, Cause

pytestmark = pytest.mark.requirement("grant-only-everywhere")

BOB, EVE = "b" * 32, "e" * 32


def test_each_message_is_answered_once_and_a_repeated_answer_is_the_same_one() -> None:
    cause = Cause()
    assert not cause.may_answer(BOB, "a1")

    for delivered in ("m1", "m1", "m2"):  # one of them a second time
        cause.delivered(delivered, "1", BOB)

    assert cause.may_answer(BOB, "a1")
    assert cause.may_answer(BOB, "a1")
    assert not cause.may_answer(EVE, "a2")
    assert cause.may_answer(BOB, "a2")
    assert not cause.may_answer(BOB, "a3")
    assert not cause.may_answer(BOB, "")


def test_an_answer_to_one_agent_opens_no_other() -> None:
    cause = Cause()
    cause.delivered("m1", "1", BOB)

    assert cause.may_answer(BOB, "a1")
    assert not cause.may_answer(EVE, "a1")


def test_what_is_remembered_is_bounded() -> None:
    cause = Cause()
    for number in range(2 * KEPT):
        cause.delivered(f"m{number}", str(number), f"{number:032x}")

    assert max(map(len, (cause.heard, cause.owed))) == KEPT
