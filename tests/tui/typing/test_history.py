"""What was typed before."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from postroom.errors import EnvironmentFault
from postroom.tui.typing.history import LONGEST, MOST, History


def test_lines_come_back_in_another_terminal(tmp_path: Path) -> None:
    file = tmp_path / "config" / "typed.jsonl"
    first = History(file)
    for line in ("one", "two\nlines", "two\nlines"):
        first.add(line)

    later = History(file)

    assert later.lines == ["one", "two\nlines"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_line_that_begins_with_a_space_is_not_kept_nor_a_very_long_one(tmp_path: Path) -> None:
    history = History(tmp_path / "typed")
    for line in (" secret", "", "x" * (LONGEST + 1), "kept"):
        history.add(line)

    assert (tmp_path / "typed").read_text() == '"kept"\n'


def test_up_and_down_go_through_them_and_back_to_what_was_begun() -> None:
    history = History()
    history.add("one")
    history.add("two")

    assert history.older("begun") == "two"
    assert history.older("two") == "one"
    assert history.older("one") is None
    assert history.newer() == "two"
    assert history.newer() == "begun"
    assert history.newer() is None


def test_the_file_stays_bounded(tmp_path: Path) -> None:
    file = tmp_path / "typed"
    history = History(file)
    for number in range(2 * MOST + 1):
        history.add(str(number))

    assert len(file.read_text().splitlines()) == MOST
    assert len(history.lines) == MOST
    assert History(file).lines[-1] == str(2 * MOST)


def test_search_finds_the_newest_first_and_each_line_once() -> None:
    history = History()
    for line in ("deploy a", "stop", "Deploy b", "deploy a"):
        history.add(line)

    assert history.search("deploy") == "deploy a"
    assert history.search("deploy", skip=1) == "Deploy b"
    assert history.search("deploy", skip=2) is None
    assert history.search("") is None


def test_a_file_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    history = History(tmp_path)

    with pytest.raises(EnvironmentFault):
        history.add("one")
    history.add("two")

    assert history.lines == ["one", "two"]


def test_a_damaged_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "typed"
    file.write_bytes(b'"one"\n{"a": 1}\n\xff\xfe\n"two"\n"cut')

    assert History(file).lines == ["one", "two"]
