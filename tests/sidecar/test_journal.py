from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from postroom.errors import StateUnwritable
from postroom.sidecar.journal import Journal, Note

ALICE = "a" * 32
MALLORY = "b" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "confirmed"


@pytest.mark.requirement("sidecar-message-handed")
def test_what_was_confirmed_is_known_to_the_next_start(path: Path):
    Journal(path).add("m1", ALICE)  # never closed, as after SIGKILL

    again = Journal(path)
    assert again.confirmed("m1", ALICE)
    assert again.sender("m1") == ALICE
    assert not again.confirmed("m2", ALICE)


@pytest.mark.requirement("sidecar-message-handed")
def test_what_was_handed_over_is_known_to_the_next_start_until_it_is_confirmed(path: Path):
    journal = Journal(path)
    for note in (Note(1), Note(2), Note(1, set_aside=True)):
        journal.keep("m1", ALICE, note)
    journal.keep("m2", ALICE, Note(1))
    journal.add("m2", ALICE)

    for again in (
        Journal(path),
        Journal(path),
    ):  # the second one reads what the first has rewritten
        assert again.note("m1", ALICE) == Note(1, set_aside=True)
        assert again.note("m1", MALLORY) is None
        assert again.note("m2", ALICE) is None
        assert again.confirmed("m2", ALICE)
        assert not again.confirmed("m1", ALICE)


def test_a_line_that_a_full_disk_cut_short_swallows_no_later_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path)
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:-9])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StateUnwritable):
        journal.keep("m1", ALICE, Note(1))
    monkeypatch.undo()
    assert journal.note("m1", ALICE) is None

    journal.add("m2", ALICE)
    assert Journal(path).confirmed("m2", ALICE)


def test_an_id_counts_only_together_with_its_sender(path: Path):
    journal = Journal(path)
    journal.add("m1", ALICE)

    assert not journal.confirmed("m1", MALLORY)


@pytest.mark.parametrize("torn", [b"m2", b"m2 " + b"a" * 20, b"\xff\xfe\n", b"../x y\n"])
def test_a_torn_or_foreign_line_is_skipped_and_the_next_one_is_whole(path: Path, torn: bytes):
    Journal(path).add("m1", ALICE)
    with path.open("ab") as file:
        file.write(torn)

    journal = Journal(path)
    journal.add("m3", ALICE)
    again = Journal(path)
    assert len(again) == 2
    assert again.confirmed("m1", ALICE)
    assert again.confirmed("m3", ALICE)


def test_the_oldest_are_forgotten_and_the_file_stays_bounded(path: Path):
    journal = Journal(path, kept=10)
    for n in range(100):
        journal.add(f"m{n}", ALICE)

    assert len(journal) == 10
    assert len(path.read_text().splitlines()) < 20
    again = Journal(path, kept=10)
    assert again.confirmed("m99", ALICE)
    assert not again.confirmed("m0", ALICE)


def test_messages_that_nobody_confirms_are_forgotten_one_day_and_the_file_stays_bounded(path: Path):
    journal = Journal(path, kept=10)
    for n in range(100):
        journal.keep(f"m{n}", ALICE, Note(1))

    assert len(path.read_text().splitlines()) < 40
    assert Journal(path, kept=10).note("m99", ALICE) == Note(1)
    assert Journal(path, kept=10).note("m0", ALICE) is None


def test_a_link_in_place_of_the_new_file_is_not_followed(path: Path, tmp_path: Path):
    target = tmp_path / "target"
    target.write_text("precious")
    path.with_suffix(".new").symlink_to(target)

    with pytest.raises(StateUnwritable):
        Journal(path)
    assert target.read_text() == "precious"


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path):
    with pytest.raises(StateUnwritable):
        Journal(tmp_path / "missing" / "confirmed")


def test_no_file_descriptor_is_left_open(path: Path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    journal = Journal(path, kept=2)
    for n in range(20):
        journal.add(f"m{n}", ALICE)
    journal.close()
    journal.close()

    assert len(list(Path("/proc/self/fd").iterdir())) == before
