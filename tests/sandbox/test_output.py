from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from postroom.sandbox.output import OutputLog, drain, tail

pytestmark = pytest.mark.anyio


def test_a_full_log_starts_anew_and_the_one_before_is_kept(tmp_path: Path):
    log = OutputLog(tmp_path / "log", limit=10)
    for chunk in (b"first678", b"second78", b"third"):
        log.write(chunk)
    log.close()

    assert (tmp_path / "log").read_bytes() == b"third"
    assert (tmp_path / "log.1").read_bytes() == b"second78"


def test_a_link_in_place_of_the_log_is_not_followed(tmp_path: Path):
    (tmp_path / "log").symlink_to(tmp_path / "victim")

    with pytest.raises(OSError):
        OutputLog(tmp_path / "log")
    assert not (tmp_path / "victim").exists()


async def test_a_failed_write_is_reported_and_the_reading_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(chunk: bytes):
        raise OSError("disk full")

    log = OutputLog(tmp_path / "log")
    monkeypatch.setattr(log, "write", refuse)
    reader = asyncio.StreamReader()
    reader.feed_data(b"x" * 200_000)
    reader.feed_eof()

    assert await drain(reader, log) == "disk full"
    assert reader.at_eof()


async def test_a_full_disk_fails_no_end_of_a_program(tmp_path: Path):
    reader = asyncio.StreamReader()
    reader.feed_data(b"its last words")
    reader.feed_eof()

    assert "No space left" in await drain(reader, OutputLog(Path("/dev/full")))


def test_the_tail_of_a_log_is_its_last_bytes(tmp_path: Path):
    (tmp_path / "log").write_bytes(b"a" * 100 + b"end")

    assert tail(tmp_path / "log", 3) == "end"
    assert tail(tmp_path / "none") == ""
