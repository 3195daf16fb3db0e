"""Plumbing of a connection: each frame stands behind a line that was there before it, and is counted once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.gateway.connection import (
    ANSWER,
    BEAT,
    LARGEST,
    MOST_BYTES,
    MOST_FRAMES,
    PULL,
    WINDOW,
    Plumbing,
)

frames = st.lists(
    st.tuples(
        st.sampled_from([BEAT, PULL, ANSWER]),
        st.integers(0, LARGEST),
        st.sampled_from([0.0, 0.01, 5.0, 59.9, 60.0, 3600.0, -5.0]),
    ),
    max_size=300,
)


@pytest.mark.requirement("audit-acts-explained")
@given(frames)
def test_every_frame_is_counted_by_exactly_one_line_and_covered_by_the_one_before_it(
    said: list[tuple[str, int, float]],
):
    plumbing, now = Plumbing(), 1_000_000.0
    counted = total = 0
    written = None
    for kind, size, pause in said:
        now += pause
        if not plumbing.covered(now, size):
            line = plumbing.line(now)
            counted, total = counted + line["count"], total + line["size"]
            written = now
        plumbing.count(kind, size)
        assert written is not None
        assert written - WINDOW <= now < written + WINDOW
        assert plumbing.frames <= MOST_FRAMES
        assert plumbing.bytes <= MOST_BYTES
    last = plumbing.line()
    assert counted + last["count"] == len(said)
    assert total + last["size"] == sum(size for _, size, _ in said)
    assert not plumbing.covered(now, 0)


def test_a_line_says_in_words_what_it_counts():
    plumbing = Plumbing()
    assert plumbing.line(1.0)["reason"] == "beats, pulls and answers of up to 60 s follow"
    for kind, size in ((BEAT, 200), (BEAT, 201), (PULL, 60)):
        plumbing.count(kind, size)
    assert plumbing.line()["reason"] == "2 beats 401 B; 1 pulls 60 B"


def test_many_frames_in_a_second_are_a_line_for_each_thousand():
    plumbing, lines = Plumbing(), 0
    for _ in range(2500):
        if not plumbing.covered(1.0, 100):
            plumbing.line(1.0)
            lines += 1
        plumbing.count(BEAT, 100)
    assert lines == 3
