"""The audit log: nothing passes a door that it does not know of."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.errors import StateUnwritable
from postroom.gateway.audit import AuditLog
from postroom.gateway.keeping import UNWRITABLE, Keeping
from postroom.protocol.audit import AuditRecord
from tests.gateway.rig import SCOUT, Rig, soon

pytestmark = pytest.mark.anyio
FULL_DISK = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(not FULL_DISK.exists(), reason="this system has no /dev/full")


def _line(worker: str = SCOUT, reason: str = "") -> bytes:
    return AuditRecord(at="", worker=worker, connection="c1", reason=reason).encode()


@pytest.mark.requirement("audit-relay-first")
async def test_a_connection_is_in_the_log_before_the_first_byte_passes(rig: Rig):
    near, far = await rig.enter()
    await near.send(b"x")
    await far.read(1)

    [line] = rig.lines()

    assert (line["worker"], line["protocol"], line["verb"]) == (SCOUT, "http", "open")


@pytest.mark.requirement("audit-line-counts")
async def test_the_end_of_a_connection_is_one_line_with_what_passed(rig: Rig):
    near, far = await rig.enter("http")
    await near.send(b"question")
    near.end()
    await far.rest()
    await far.send(b"answer!")
    far.end()
    await near.rest()

    line = await rig.ending()

    assert (line["worker"], line["protocol"], line["verb"]) == (SCOUT, "http", "close")
    assert line["size"] == 15


@pytest.mark.requirement("audit-line-counts")
async def test_the_two_lines_of_a_connection_share_a_name_that_no_other_has(rig: Rig):
    for _ in range(2):
        near, far = await rig.enter()
        near.end()
        far.end()
        await near.rest()
    await rig.until(lambda: len(rig.endings()) == 2)

    names = [line["connection"] for line in rig.lines()]

    assert len(names) == 4
    assert sorted(names.count(name) for name in set(names)) == [2, 2]


@pytest.mark.requirement("audit-line-each")
async def test_a_refused_connection_leaves_one_line(rig: Rig):
    near = await rig.knock(b"\n")
    await near.rest()
    await rig.ending()

    assert len(rig.lines()) == 1


@pytest.mark.requirement("audit-line-each")
async def test_each_of_many_connections_at_once_has_one_ending(rig: Rig):
    async def visit(good: bool) -> None:
        near = await rig.knock(rig.preface() if good else b"\n")
        near.end()
        await near.rest()

    async def serve() -> None:
        for _ in range(20):
            (await rig.http.accept()).end()

    await asyncio.gather(serve(), *(visit(good=bool(i % 2)) for i in range(40)))
    await rig.until(lambda: len(rig.endings()) == 40)

    verdicts = [line["verdict"] for line in rig.endings()]
    assert (verdicts.count("allowed"), verdicts.count("denied")) == (20, 20)
    assert len(rig.lines()) == 60


@pytest.mark.requirement("audit-cut-counted")
async def test_a_connection_that_is_cut_still_leaves_its_line_with_the_bytes_so_far(rig: Rig):
    near, far = await rig.enter()
    await near.send(b"12345")
    await far.read(5)
    await far.send(b"123")
    await near.read(3)

    await soon(rig.gateway.close_door(SCOUT))

    [line] = rig.endings()
    assert (line["verb"], line["size"], line["reason"]) == ("close", 8, "the door was closed")


@pytest.mark.requirement("audit-cut-counted")
async def test_a_connection_that_is_cut_before_its_preface_counts_as_refused(rig: Rig):
    await rig.knock(b"POST")
    await rig.until(lambda: rig.gateway.statistics().open_connections == 1)

    await soon(rig.gateway.close_door(SCOUT))

    [line] = rig.lines()
    assert line["verdict"] == "denied"
    assert rig.gateway.statistics().accepted == 0


@pytest.mark.requirement("audit-secrets-absent")
async def test_no_token_and_no_relayed_byte_is_in_the_log(rig: Rig):
    near, far = await rig.enter()
    await near.send(b"private words")
    await far.read(13)
    wrong = await rig.knock(b"POSTROOM/1 http s3cret\n")
    await wrong.rest()
    malformed = await rig.knock(b"POSTROOM/1 s3cret\n")
    await malformed.rest()
    near.end()
    far.end()
    await rig.until(lambda: len(rig.endings()) == 3)

    written = rig.log.read_text()
    assert "s3cret" not in written
    assert "private" not in written
    assert rig.tokens[SCOUT] not in written


@needs_full_disk
@pytest.mark.requirement("audit-relay-first")
async def test_on_a_full_disk_a_connection_is_refused_and_not_relayed_unaudited(rig: Rig):
    told: list[str] = []
    full = AuditLog(FULL_DISK)
    rig.gateway._doors[SCOUT].audit = Keeping(full, lambda kind, text: told.append(kind))
    near = await rig.knock(rig.preface() + b"secret order")

    assert await near.rest() == b""
    await rig.until(lambda: rig.gateway.statistics().refused == 1)
    assert [await end.rest() for end in rig.http.ends] in ([], [b""])
    assert rig.gateway.statistics().accepted == 0
    assert told == [UNWRITABLE]
    full.close()


@needs_full_disk
@pytest.mark.requirement("audit-relay-first")
def test_a_line_that_the_disk_does_not_take_is_an_error():
    log = AuditLog(FULL_DISK)
    try:
        with pytest.raises(StateUnwritable, match="No space left"):
            log.write(_line())
    finally:
        log.close()


@pytest.mark.requirement("audit-line-whole")
def test_a_line_that_was_half_written_is_an_error_and_spoils_no_other(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    program = """
import resource, sys
from pathlib import Path
from postroom.errors import StateUnwritable
from postroom.gateway.audit import AuditLog
path = Path(sys.argv[1])
log = AuditLog(path)
def write(worker):
    log.write(b'{"worker":"%b"}' % worker.encode() + bytes([10]))
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
write("first")
limit(path.stat().st_size + 10)
try:
    write("second")
except StateUnwritable:
    print("refused")
limit(resource.RLIM_INFINITY)
write("third")
"""
    said = subprocess.run(
        [sys.executable, "-c", program, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    first, torn, third = path.read_text().splitlines()
    assert said.stdout == "refused\n"
    assert json.loads(first)["worker"] == "first"
    assert len(torn) == 10
    assert json.loads(third)["worker"] == "third"


@pytest.mark.requirement("audit-line-whole")
def test_a_line_that_a_killed_process_left_torn_spoils_no_other(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    path.write_text('{"torn')

    log = AuditLog(path)
    log.write(_line())
    log.close()

    torn, whole = path.read_text().splitlines()
    assert torn == '{"torn'
    assert json.loads(whole)["worker"] == SCOUT


@pytest.mark.requirement("audit-file-private")
def test_only_the_owner_may_read_the_log_and_its_folder(tmp_path: Path):
    path = tmp_path / "logs" / "audit.jsonl"
    before = os.umask(0)
    try:
        AuditLog(path).close()
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_lines_are_added_to_what_is_there(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    for worker in ("first", "second"):
        log = AuditLog(path)
        log.write(_line(worker))
        log.close()

    assert [json.loads(line)["worker"] for line in path.read_text().splitlines()] == [
        "first",
        "second",
    ]


@pytest.mark.requirement("audit-line-whole")
def test_a_line_break_in_a_value_does_not_make_a_second_line(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write(_line(reason='x"\n{"worker":"forged"}\u2028'))
    log.close()

    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 1


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(StateUnwritable):
        AuditLog(tmp_path / "file" / "audit.jsonl")
