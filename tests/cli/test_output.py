from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.cli.output import print_table
from postroom.cli.waiting import said_if_slow
from postroom.lines.text import Cell, block, columns, table
from postroom.view.words import ago
from tests.cli.terminal import ANSI


@pytest.mark.parametrize(
    "seconds, text",
    [
        (-5, "0 s ago"),
        (0, "0 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (7200, "2 h ago"),
        (90000, "1 d ago"),
    ],
)
def test_times_are_said_in_their_largest_unit(seconds: int, text: str):
    assert ago("1970-01-01T00:16:40.000Z", 1000.0 + seconds) == text


@given(
    st.lists(st.lists(st.text(max_size=90), min_size=4, max_size=4), max_size=5),
    st.integers(20, 120),
)
def test_a_table_is_never_wider_than_the_terminal(rows: list[list[str]], width: int):
    head = ("NICK", "STATE", "TASK", "LAST")
    cells = [[Cell(text) for text in row] for row in rows]
    shown = table(head, cells, cut=("LAST", "NICK"), width=width)
    assert all(columns(ANSI.sub("", line)) <= width for line in shown)


@given(st.text())
def test_no_text_can_begin_a_line_that_looks_like_another(text: str):
    first, *rest = block("12:00:00 [bob] ", text).split("\n")
    assert first.startswith("12:00:00 [bob] ")
    assert all(line.startswith("    | ") for line in rest)


@given(st.text(), st.integers(0, 40))
def test_a_cell_fills_its_column_and_stays_on_its_line(text: str, width: int):
    shown = Cell(text).padded(width)
    assert columns(shown) >= width
    assert shown.splitlines() in ([shown], [])
    assert "\x1b" not in shown


def test_wide_letters_keep_the_columns_straight(capsys: pytest.CaptureFixture[str]):
    print_table(("A", "B"), [[Cell("日本"), Cell("x")], [Cell("abc"), Cell("y")]])
    assert capsys.readouterr().out == "A     B\n日本  x\nabc   y\n"


@pytest.mark.parametrize(
    "terminal, row",
    [
        (True, "1  a long detail with many …  and a second one\n"),
        (False, "1  a long detail with many words  and a second one\n"),
    ],
)
def test_a_table_is_cut_to_the_terminal_and_never_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, row: str
):
    monkeypatch.setenv("COLUMNS", "46")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    cells = [Cell("1"), Cell("a long detail with many words"), Cell("and a second one")]
    print_table(("N", "TASK", "DETAIL"), [cells], cut=("DETAIL", "TASK"))
    assert capsys.readouterr().out.splitlines(keepends=True)[1] == row


def test_what_is_waited_for_is_said_if_it_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with said_if_slow("never said"):
        pass
    monkeypatch.setattr("postroom.cli.waiting.SLOW", 0.0)
    with said_if_slow("waiting ...") as timer:
        timer.join()
    assert capsys.readouterr().err == "waiting ...\n"
