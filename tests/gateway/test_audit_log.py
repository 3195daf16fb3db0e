"""The files of the audit log: every record once and in order, whatever is killed, full or deleted."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.audit import AuditLog
from postroom.audit import log as log_module
from postroom.audit.reading import Files, Match, Position, all_lines, newest, read_lines
from postroom.errors import StateUnwritable
from postroom.protocol.audit import AuditRecord

pytestmark = pytest.mark.anyio
FULL_DISK = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(not FULL_DISK.exists(), reason="this system has no /dev/full")
WORKER = "a" * 32


def record(message: object = "m1") -> bytes:
    return AuditRecord(at="t", worker=WORKER, message=str(message)).encode()


def numbers(path: Path, end: Position | None = None) -> list[int]:
    """Of the numbered records, read back."""
    files = Files(path)
    end = end or Position(files.number(), path.stat().st_size if path.exists() else 0)
    found = []
    for line in all_lines(files, end):
        with suppress(ValueError):
            if said := json.loads(line).get("message"):
                found.append(int(said))
    return found


def documents(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def file_limit(size: int) -> Generator[None]:
    """No file of this process can be longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


steps = st.lists(
    st.one_of(
        st.integers(1, 5),  # so many lines in one write
        st.sampled_from(["restart", "torn", "full", "kill between renames", "tend"]),
    ),
    max_size=40,
)


@pytest.mark.requirement("audit-once-in-order")
@given(steps=steps, file_bytes=st.integers(1, 2000))
@settings(deadline=None)
def test_every_written_record_is_read_back_once_and_in_order(
    steps: list[int | str], file_bytes: int
):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        log = AuditLog(path, file_bytes=file_bytes, files=10_000)
        written = 0
        for step in steps:
            match step:
                case int(count):
                    log.write(b"".join(record(written + n) for n in range(count)))
                    written += count
                case "full":
                    size = path.stat().st_size
                    with file_limit(size + 30), pytest.raises(StateUnwritable):
                        log.write(record(-1) + record(-2))
                case "tend":
                    asyncio.run(log.tend())
                case _:
                    log.close()
                    if step == "torn":
                        with path.open("ab") as file:
                            file.write(record(-1)[:20])
                    elif step == "kill between renames":
                        path.rename(log.files.closed_path(log.end.file))
                        path.with_name("audit.jsonl.next").touch()
                    log = AuditLog(path, file_bytes=file_bytes, files=10_000)
        found = numbers(path, log.end)
        log.close()

        assert found == list(range(written))


@pytest.mark.requirement("audit-once-in-order")
@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=30), chunk=st.integers(300, 900))
@settings(deadline=None)
def test_reading_in_chunks_of_any_size_finds_each_line_once(sizes: list[int], chunk: int):
    with tempfile.TemporaryDirectory() as folder:
        log = AuditLog(Path(folder) / "audit.jsonl", file_bytes=1000)
        lines = [b"%0*d" % (min(size, chunk - 1), n) for n, size in enumerate(sizes)]
        position, found = Position(), []
        for line in lines:
            log.write(line + b"\n")
            more, position = read_lines(log.files, position, log.end, chunk)
            found += more
        while True:
            more, reached = read_lines(log.files, position, log.end, chunk)
            found += more
            if reached == position:
                break
            position = reached
        log.close()

        assert [int(line) for line in found] == list(range(len(lines)))


@pytest.mark.requirement("audit-once-in-order")
def test_nothing_that_was_written_is_lost_when_the_process_is_killed_while_it_rotates(
    tmp_path: Path,
):
    path, first = tmp_path / "audit.jsonl", 0
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.audit_process", str(path), str(first)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(137)]
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.readlines()
        writer.wait(30)
        writer.stdout.close()

        told = int([line for line in said if line.endswith(b"\n")][-1])
        found = numbers(path)
        assert found == list(range(len(found)))
        assert found[-1] >= told
        first = found[-1] + 1
    assert len(Files(path).closed()) > 20


@pytest.mark.requirement("audit-once-in-order")
async def test_a_full_file_is_closed_under_a_number_and_the_oldest_goes_with_a_line(
    tmp_path: Path,
):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, file_bytes=1000, files=3)
    for number in range(80):
        log.write(record(number))
        await log.tend()

    assert len(log.files.closed()) == 3
    kept = numbers(path, log.end)
    assert kept == list(range(kept[0], 80))
    deleted = [
        json.loads(line)
        for line in all_lines(log.files, log.end)
        if json.loads(line).get("verb") == "delete"
    ]
    assert deleted
    assert all("over 3 closed files" in line["reason"] for line in deleted)
    log.close()


@pytest.mark.requirement("mail-retention-covered")
async def test_a_closed_file_that_is_too_old_goes_with_a_line(tmp_path: Path):
    path, now = tmp_path / "audit.jsonl", time.time()
    log = AuditLog(path, file_bytes=1000, files=100, keep=86400.0, clock=lambda: now)
    for number in range(40):
        log.write(record(number))
    await log.tend()
    closed = log.files.closed()
    for number in closed[:2]:
        os.utime(log.files.closed_path(number), (now, now - 90000))
    assert [old.number for old in log.too_old()] == closed[:2]
    now += 3601
    await log.tend()
    assert log.files.closed()[: len(closed) - 2] == closed[2:]
    assert b"older than 1 days" in path.read_bytes()
    log.close()


@pytest.mark.requirement("audit-once-in-order")
def test_a_rotation_that_fails_loses_nothing(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    path.with_name("audit.jsonl.next").mkdir()  # so that the next file cannot be made
    with pytest.raises(StateUnwritable):
        AuditLog(path)
    path.with_name("audit.jsonl.next").rmdir()
    log = AuditLog(path, file_bytes=10)
    path.with_name("audit.jsonl.next").mkdir()

    for number in range(5):
        log.write(record(number))

    assert log.files.closed() == []
    assert numbers(path, log.end) == [0, 1, 2, 3, 4]
    log.close()


@pytest.mark.requirement("audit-once-in-order")
def test_of_a_write_that_is_cut_short_nothing_stays(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write(record("first"))
    size = path.stat().st_size

    with (
        file_limit(size + len(record("x")) + 10),
        pytest.raises(StateUnwritable, match="No space"),
    ):
        log.write(record("a") + record("b"))

    assert path.stat().st_size == size
    log.write(record("third"))
    log.close()
    first, lost, third = documents(path)
    assert (first["message"], third["message"]) == ("first", "third")
    assert (lost["verb"], lost["verdict"]) == ("lost", "denied")
    assert str(lost["reason"]).startswith("2 records could not be written since")


@pytest.mark.requirement("audit-once-in-order")
def test_a_line_that_a_killed_process_left_torn_spoils_no_other(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    path.write_text('{"torn')

    log = AuditLog(path)
    log.write(record())
    log.close()

    torn, whole = path.read_text().splitlines()
    assert torn == '{"torn'
    assert json.loads(whole)["message"] == "m1"


@pytest.mark.requirement("audit-once-in-order")
def test_a_line_break_in_a_value_does_not_make_a_second_line(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write(AuditRecord(at="t", reason='x"\n{"worker":"forged"}\u2028').encode())
    log.close()

    assert len(path.read_bytes().splitlines()) == 1


@needs_full_disk
@pytest.mark.requirement("audit-recorded-first")
def test_what_the_disk_does_not_take_is_an_error():
    log = AuditLog(FULL_DISK)
    with pytest.raises(StateUnwritable, match="No space left"):
        log.write(record())
    log.close()


@pytest.mark.requirement("audit-recorded-first")
async def test_trouble_begins_once_and_ends_by_itself_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_module, "SYNC_INTERVAL", 0.01)
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    running = asyncio.create_task(log.run())
    turned = log.turn()
    with file_limit(1):
        for _ in range(3):
            with pytest.raises(StateUnwritable):
                log.write(record())
        async with asyncio.timeout(10):
            await asyncio.wait({turned})
        trouble = log.trouble
        assert trouble is not None
        assert trouble.records == 3
        well = log.turn()

    async with asyncio.timeout(10):
        await asyncio.wait({well})
    assert log.trouble is None
    log.write(record("afterwards"))
    running.cancel()
    log.close()
    lost, after = documents(path)
    assert "3 records could not be written" in str(lost["reason"])
    assert "was not let through" in str(lost["reason"])
    assert after["message"] == "afterwards"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.requirement("audit-recorded-first")
async def test_on_a_disk_that_is_full_every_record_is_whole_or_refused(small_disk: Path):
    path, ballast = small_disk / "audit.jsonl", small_disk / "ballast"
    log = AuditLog(path, file_bytes=20_000)
    ballast.write_bytes(bytes(900_000))
    written = refused = 0
    while refused < 50:
        try:
            log.write(b"".join(record(written + n) for n in range(7)))
        except StateUnwritable:
            refused += 1
        else:
            written += 7
        await log.tend()
    assert log.trouble is not None

    ballast.unlink()
    await log.tend()
    log.write(record(written))

    assert numbers(path, log.end) == list(range(written + 1))
    assert log.trouble is None
    log.close()


@pytest.mark.requirement("audit-recorded-first")
async def test_a_lossy_log_lets_pass_and_then_says_how_many_records_are_missing(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, lossy=True)
    with file_limit(path.stat().st_size + 1):
        for _ in range(7):
            log.write(record() + record())
        await log.tend()
        assert log.trouble is not None

    await log.tend()

    log.close()
    begin, lost = documents(path)
    assert begin["verb"] == "lossy"
    assert "14 records could not be written" in str(lost["reason"])
    assert "passed unrecorded" in str(lost["reason"])


@pytest.mark.requirement("audit-recorded-first")
async def test_what_was_written_is_synced_and_a_failing_sync_stops_the_traffic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = AuditLog(tmp_path / "audit.jsonl", file_bytes=200)
    synced: list[int] = []
    broken = False

    def fsync(descriptor: int) -> None:
        if broken:
            raise OSError(5, "Input/output error")
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(log_module.os, "fsync", fsync)
    log.write(record())
    first = (tmp_path / "audit.jsonl").stat().st_ino
    log.write(record())
    await log.tend()
    assert {first, (tmp_path / "audit.jsonl").stat().st_ino} <= set(synced)

    broken = True
    log.write(record())
    await log.tend()
    with pytest.raises(StateUnwritable, match="Input/output error"):
        log.write(record())

    broken = False
    await log.tend()
    log.write(record())
    log.close()


@pytest.mark.requirement("audit-recorded-first")
async def test_the_background_task_syncs_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_module, "SYNC_INTERVAL", 0.01)
    log = AuditLog(tmp_path / "audit.jsonl")
    running = asyncio.create_task(log.run())
    for _ in range(2):
        log.write(record())
        async with asyncio.timeout(10):
            while log._synced != log.end:  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # the disk sends no event
    running.cancel()
    log.close()


async def test_a_log_that_was_removed_is_begun_anew_and_says_so(tmp_path: Path):
    path = tmp_path / "logs" / "audit.jsonl"
    log = AuditLog(path)
    log.write(record())
    path.unlink()
    await log.tend()
    log.write(record("afterwards"))
    log.close()

    lost, after = documents(path)
    assert "its file was removed" in str(lost["reason"])
    assert after["message"] == "afterwards"


@pytest.mark.requirement("identity-keys-private")
def test_only_the_owner_may_read_the_log_and_its_folder(tmp_path: Path):
    path = tmp_path / "logs" / "audit.jsonl"
    before = os.umask(0)
    try:
        log = AuditLog(path, file_bytes=1)
        log.write(record())
        log.close()
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.files.closed_path(1).stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@given(limit=st.integers(1, 30), count=st.integers(0, 40))
@settings(deadline=None, max_examples=30)
def test_the_newest_lines_come_oldest_first_from_as_many_files_as_are_needed(
    limit: int, count: int
):
    with tempfile.TemporaryDirectory() as folder:
        log = AuditLog(Path(folder) / "audit.jsonl", file_bytes=300, files=100)
        for number in range(count):
            log.write(record(number))

        def handler(line: bytes) -> Match:
            number = int(json.loads(line)["message"])
            return Match.OMITTED if number % 3 == 2 else Match.WANTED

        found, omitted = newest(log.files, log.end, limit, handler)
        log.close()

        ids = [int(json.loads(line)["message"]) for line in found]
        wanted = [number for number in range(count) if number % 3 != 2]
        assert ids == wanted[-limit:]
        first = wanted[-limit] if len(wanted) > limit else -1
        if len(wanted) != limit:  # else nothing says whether to look before the first one
            assert omitted == sum(number % 3 == 2 for number in range(first + 1, count))


def test_a_reader_whose_file_was_deleted_goes_on_with_the_oldest(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl", file_bytes=1)
    for number in range(5):
        log.write(record(number))
    for number in (1, 2):
        log.files.closed_path(number).unlink()

    position = Position(1, 3)
    lines, position = read_lines(log.files, position, log.end)
    more, _ = read_lines(log.files, position, log.end)
    log.close()

    assert (lines, position) == ([], Position(3))
    assert json.loads(more[0])["message"] == "2"
