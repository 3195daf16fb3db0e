from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroom.sidecar.lines import LineReader, Overlong


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_how_the_bytes_are_cut_does_not_change_the_lines(data: bytes, cuts: list[int]):
    whole = LineReader(cap=20)
    expected = whole.feed(data) + whole.finish()

    pieces = LineReader(cap=20)
    found = []
    start = 0
    for cut in sorted({min(c, len(data)) for c in cuts} | {len(data)}):
        found += pieces.feed(data[start:cut])
        start = cut
    found += pieces.finish()

    assert found == expected


def test_lines_end_at_newlines_and_lose_a_carriage_return():
    reader = LineReader()

    assert reader.feed(b"one\r\ntwo\n\nthr") == ["one", "two", ""]
    assert reader.feed(b"ee\n") == ["three"]
    assert reader.finish() == []


def test_the_last_line_needs_no_newline():
    reader = LineReader()
    reader.feed(b"one\ntwo")

    assert reader.finish() == ["two"]


def test_a_line_over_the_cap_is_reported_once_and_the_next_one_is_read():
    reader = LineReader(cap=5)

    assert reader.feed(b"12345\n123456") == ["12345", Overlong("12345")]
    assert reader.feed(b"7890" * 1000) == []
    assert reader.feed(b"\nnext\n") == ["next"]


def test_invalid_utf8_becomes_replacement_characters():
    assert LineReader().feed(b"a\xff\n") == ["a\ufffd"]
