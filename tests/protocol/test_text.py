"""What reaches a person's terminal of a hostile text."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom_a2a.text import one_line, printable

EVERYTHING = "".join(map(chr, range(sys.maxunicode + 1)))
any_text = st.text(st.characters(exclude_categories=()))


@pytest.mark.requirement("text-controls-stripped")
def test_no_control_character_is_left_but_newline_and_tab():
    controls = {c for c in printable(EVERYTHING) if unicodedata.category(c) == "Cc"}

    assert controls == {"\n", "\t"}


@pytest.mark.requirement("text-controls-stripped")
def test_no_character_that_changes_the_direction_of_reading_is_left():
    directions = {
        "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI",
    }  # fmt: skip
    marks = "\u061c\u200e\u200f"
    kept = printable(EVERYTHING)

    assert [c for c in kept if unicodedata.bidirectional(c) in directions or c in marks] == []


@pytest.mark.requirement("text-controls-stripped")
def test_no_character_is_left_that_cannot_be_written_as_utf_8():
    assert printable(EVERYTHING).encode().decode() == printable(EVERYTHING)


@pytest.mark.requirement("text-controls-stripped")
@pytest.mark.parametrize(
    "hostile, shown",
    [
        ("\x1b[2Jgone", "gone"),
        ("\x1b[38;5;1mred\x1b[0m, up \x1b[A\x1bOA", "red, up "),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x9b2Jc", "abc"),
        ("\x1b]0;no end", "]0;no end"),
        ("\x1b(Bplain\x1b", "plain"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("real\rfake", "realfake"),
        ("a\u202etxt.exe", "atxt.exe"),
        ("a\u2028b", "ab"),
        ("in\u200bvisible", "invisible"),
        ("\ud800", ""),
    ],
)
def test_an_attack_on_the_terminal_is_taken_out(hostile: str, shown: str):
    assert printable(hostile) == shown


@given(st.text(st.characters(categories=("L", "N", "P", "S", "M", "Zs"))))
def test_letters_of_every_alphabet_are_kept(text: str):
    assert printable(text) == text


@pytest.mark.requirement("text-controls-stripped")
@given(any_text, st.integers(1, 80))
@example("a\nb\tc", 80)
@example("\u2028\x85\x0b", 1)
def test_one_line_is_one_printable_line_of_at_most_the_limit(text: str, limit: int):
    line = one_line(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert printable(line) == line


def test_what_was_cut_shows_it():
    assert one_line("one two three", 8) == "one two…"
    assert one_line("one two", 7) == "one two"
