"""Workers start while another account of the machine touches every canary, and when a wall came back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from postroom.sandbox import bubblewrap_program
from tests.e2e.conftest import PostRoom, until
from tests.sandbox.providers import needs_root
from tests.stranger import stranger

IDLE = """
[worker]
name = "{name}"
[workstation]
command = ["sleep", "1000"]
"""


@needs_root
@pytest.mark.requirement("sandbox-stranger-unbelieved", "mend-canaries-touched")
@pytest.mark.parametrize("how", ["touch", "hold"])
def test_a_worker_is_spawned_behind_an_enforced_wall_while_a_stranger_touches_the_canaries(
    how: str,
):
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.up()
        try:
            with stranger(room.server["pid"], how, urlsplit(room.server["url"]).port or 0) as other:
                room.run("spawn", room.template(IDLE.format(name="first"), "first"))
                room.run("restart", "first")
                assert other.ends() > 0
            assert room.worker("first")["sandbox"]["level"] == "enforced"
            assert "a stranger has touched a canary of the wall test" in room.control_log
        finally:
            room.run("down")


@pytest.mark.requirement("sandbox-select-failclosed")
def test_a_worker_that_found_no_wall_at_a_start_runs_when_there_is_one():
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        broken, bwrap = Path(scratch) / "broken", Path(scratch) / "bwrap"
        bwrap.write_text(
            f'#!/bin/sh\nif [ -e {broken} ]; then echo "bwrap: no" >&2; exit 1; fi\n'
            f'exec {bubblewrap_program.candidates()[0]} "$@"\n'
        )
        bwrap.chmod(0o755)
        room.env |= {"POSTROOM_BWRAP": str(bwrap)}
        room.up()
        try:
            room.run("spawn", room.template(IDLE.format(name="patient"), "patient"))
            room.run("down")
            broken.touch()
            room.up()
            until(lambda: room.worker("patient")["state"] == "failed")
            assert "was not started: the sandbox 'bubblewrap' does not work here" in room.run(
                "alerts"
            )
            broken.unlink()
            until(lambda: room.worker("patient")["state"] == "idle")
            until(lambda: "was not started" not in room.run("alerts"))
        finally:
            room.run("down")
