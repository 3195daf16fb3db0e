"""The limits of callers, by a clock of the test."""

from __future__ import annotations

import contextlib

import pytest

from postroom.control.limits import (
    MARKS,
    MAX_CALLERS,
    PATIENCE,
    PIECE,
    Bounds,
    CallerLimits,
    Comer,
)
from postroom.errors import Refused, TooManyRequests, http_status, problem, retry_after
from postroom.identity.tokens import new_api_key
from postroom.protocol.limits import MAX_API_KEYS
from postroom.protocol.principal import KEY, OPERATOR_KEY, USUAL_SCOPES, Principal

pytestmark = pytest.mark.requirement("caller-limits")
HOME = "192.0.2.1"
AT_ONCE = 60


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> CallerLimits:
    return CallerLimits(Bounds(requests=2, burst=10, strangers=60, streams=2, open=3), clock)


def bearer(key: str) -> Principal:
    return Principal("a" * 32, "default", "ann", "human", USUAL_SCOPES, KEY, key)


def ask(limits: CallerLimits, key: str, address: str = HOME) -> None:
    """One request with a valid key, as the gate has it."""
    comer = Comer(address, f"digest of {key}", "a" * 32)
    limits.begin(comer)
    limits.known(comer, bearer(key))


def guess(limits: CallerLimits, address: str = HOME, sha256: str = "wrong") -> None:
    """One request with a key that nobody has."""
    comer = Comer(address, sha256, "a" * 32)
    limits.begin(comer)
    limits.failed(comer)


def test_a_key_may_burst_and_then_keeps_to_its_rate(limits: CallerLimits, clock: Clock) -> None:
    for _ in range(10):
        ask(limits, "one")
    with pytest.raises(TooManyRequests, match="2 requests a second") as refused:
        ask(limits, "one")
    assert (http_status(refused.value), retry_after(refused.value)) == (429, 1)
    assert problem(refused.value)["code"] == "too-many-requests"

    ask(limits, "another")
    clock.now += 0.5
    ask(limits, "one")
    with pytest.raises(TooManyRequests):
        ask(limits, "one")
    assert limits.refused["requests"] == 2


def test_the_seconds_to_wait_are_rounded_up(clock: Clock) -> None:
    limits = CallerLimits(Bounds(requests=0.4, burst=1), clock)
    ask(limits, "one")
    with pytest.raises(TooManyRequests, match="again in 3 s") as refused:
        ask(limits, "one")
    assert retry_after(refused.value) == 3

    clock.now += 3
    ask(limits, "one")


def test_the_operators_key_is_never_refused(limits: CallerLimits) -> None:
    for _ in range(100):
        ask(limits, OPERATOR_KEY)
        limits.open_stream(OPERATOR_KEY)
    assert limits.streams == 100


def test_guesses_are_slow_and_do_not_keep_out_who_has_a_key(
    limits: CallerLimits, clock: Clock
) -> None:
    ask(limits, "neighbour")
    for at in range(AT_ONCE):
        guess(limits, sha256=f"guess {at}")
    for at in range(50):
        with pytest.raises(TooManyRequests, match="without a valid key"):
            guess(limits, sha256=f"guess {at}")

    ask(limits, "neighbour")
    limits.begin(Comer(HOME, "of somebody else", "b" * 32))
    guess(limits, "192.0.2.2")
    clock.now += 1
    guess(limits)
    with pytest.raises(TooManyRequests):
        guess(limits)


def test_a_key_that_was_good_is_a_guess_once_it_is_refused(limits: CallerLimits) -> None:
    ask(limits, "old")
    guess(limits, sha256="digest of old")  # revoked meanwhile
    for _ in range(AT_ONCE - 1):
        guess(limits)
    with pytest.raises(TooManyRequests, match="without a valid key"):
        guess(limits, sha256="digest of old")


@pytest.mark.requirement("owner-way-in")
def test_a_key_that_may_be_valid_is_looked_up_whatever_others_have_tried(
    limits: CallerLimits, clock: Clock
) -> None:
    for at in range(1000):
        with contextlib.suppress(TooManyRequests):
            guess(limits, sha256=f"guess {at}")
    ask(limits, "one of the same agent")
    clock.now += 1  # the refused ones are no debt
    guess(limits)


@pytest.mark.requirement("owner-way-in")
def test_a_key_in_use_is_not_forgotten_for_others(limits: CallerLimits, clock: Clock) -> None:
    ask(limits, "first")
    for at in range(2 * MAX_CALLERS):
        clock.now += 1
        ask(limits, f"key {at}")
        limits.begin(Comer(HOME, "digest of first", "a" * 32))
    assert limits.knows(Comer(HOME, "digest of first"))


@pytest.mark.requirement("key-scopes-demanded")
def test_keys_are_made_at_a_bounded_rate_but_for_the_operator(
    limits: CallerLimits, clock: Clock
) -> None:
    for _ in range(MAX_API_KEYS):
        limits.making(bearer("one"))
    with pytest.raises(TooManyRequests, match="too many API keys"):
        limits.making(bearer("another of the same agent"))
    clock.now += 10
    limits.making(bearer("one"))
    for _ in range(10 * MAX_API_KEYS):
        limits.making(bearer(OPERATOR_KEY))


def test_requests_with_no_key_at_all_are_slow_too(limits: CallerLimits) -> None:
    for _ in range(AT_ONCE):
        limits.failed(Comer.of(HOME, "no key of ours"))
    with pytest.raises(TooManyRequests):
        limits.begin(Comer(HOME))
    limits.begin(Comer.of(HOME, new_api_key("b" * 32)))


def test_a_network_of_ipv6_counts_as_one_address(limits: CallerLimits) -> None:
    for at in range(AT_ONCE):
        guess(limits, f"2001:db8::{at:x}")
    with pytest.raises(TooManyRequests):
        guess(limits, "2001:db8::ffff:1")
    guess(limits, "2001:db8:0:1::1")
    guess(limits, "::ffff:192.0.2.1")
    guess(limits, "fe80::1%eth0")
    guess(limits, "")


def test_what_is_kept_of_callers_is_bounded(limits: CallerLimits) -> None:
    for at in range(MAX_CALLERS + 10):
        ask(limits, f"key {at}")
        guess(limits, f"address {at}", f"wrong {at}")
    kept = (limits._keys._kept, limits._strangers._kept, limits._known)
    assert [len(each) for each in kept] == [MAX_CALLERS] * 3


def test_a_key_has_a_bounded_number_of_streams(limits: CallerLimits) -> None:
    limits.open_stream("one")
    limits.open_stream("one")
    with pytest.raises(Refused, match="2 open streams") as refused:
        limits.open_stream("one")
    assert http_status(refused.value) == 429
    limits.open_stream("another")
    limits.close_stream("one")
    limits.open_stream("one")
    assert limits.streams == 3


@pytest.mark.requirement("caller-limits")
def test_streams_that_are_opened_again_and_again_are_refused(clock: Clock) -> None:
    limits = CallerLimits(Bounds(streams=200), clock)
    for _ in range(20):
        limits.open_stream("one")
        limits.close_stream("one")
    with pytest.raises(TooManyRequests, match="opened"):
        limits.open_stream("one")
    limits.open_stream("another")
    for _ in range(1000):
        limits.open_stream(OPERATOR_KEY)
    clock.now += 0.5
    limits.open_stream("one")
    assert limits.refused == {"streams": 1}


@pytest.mark.requirement("caller-limits")
@pytest.mark.parametrize(
    "size, marks, more",
    [(0, 0, 0), (PIECE - 1, MARKS - 1, 0), (PIECE, 0, 1), (0, 3 * MARKS, 3)],
)
def test_a_body_counts_by_its_bytes_and_its_values(
    limits: CallerLimits, size: int, marks: int, more: int
) -> None:
    ask(limits, "one")
    limits.weigh("one", size, marks)
    for _ in range(9 - more):
        ask(limits, "one")
    with pytest.raises(TooManyRequests):
        ask(limits, "one")


@pytest.mark.requirement("caller-limits")
def test_large_bodies_of_one_key_wait_for_one_another_and_for_nobody_else(clock: Clock) -> None:
    limits = CallerLimits(Bounds(requests=500, burst=10_000), clock)
    assert [limits.weigh("one", 25 * PIECE, 0) for _ in range(3)] == pytest.approx([0.0, 0.2, 0.4])
    assert limits.weigh("another", 25 * PIECE, 0) == 0.0
    assert [limits.weigh(OPERATOR_KEY, 25 * PIECE, 0) for _ in range(3)] == [0.0] * 3
    assert limits.weigh("one", 100, 10) == 0.0
    while limits.weigh("one", 25 * PIECE, 0) < PATIENCE - 0.1:
        pass
    with pytest.raises(TooManyRequests, match="large bodies"):
        limits.weigh("one", 25 * PIECE, 0)
    clock.now += PATIENCE
    assert limits.weigh("one", 25 * PIECE, 0) < PATIENCE


def test_without_bounds_nobody_is_refused() -> None:
    limits = CallerLimits()
    for _ in range(1000):
        assert limits.weigh("one", 100 * PIECE, 0) == 0.0
        ask(limits, "one")
        guess(limits)
        limits.open_stream("one")


def stranger(key: str) -> Principal:
    return Principal(
        "a" * 32, "default", "a-7f3a", "external", USUAL_SCOPES, KEY, key, stranger=True
    )


@pytest.mark.requirement("join-limits")
def test_a_key_of_open_registration_has_so_many_requests_a_minute_its_bodies_and_streams_among_them(
    limits: CallerLimits, clock: Clock
) -> None:
    comer = Comer(HOME, "digest of open", "a" * 32)
    for _ in range(3):
        limits.begin(comer)
        limits.known(comer, stranger("open"))
    with pytest.raises(TooManyRequests, match=r"3 requests a minute.*open registration") as refused:
        limits.begin(comer)
    assert retry_after(refused.value) == 20
    assert "?wait=" in refused.value.remedy
    ask(limits, "a member")

    clock.now += 20
    limits.begin(comer)
    limits.weigh("open", 64 * 1024, 0)  # as four requests more
    clock.now += 60
    with pytest.raises(TooManyRequests):
        limits.begin(comer)
    clock.now += 60
    limits.begin(comer)
    for _ in range(2):
        limits.open_stream("open")
    with pytest.raises(Refused):
        limits.open_stream("open")
