"""Processor time of commands, beside that of the interpreter alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.report import Sheet
from benchmarks.room import PostRoom, command_line, post_room

FLOOR = "python -c pass"


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about ten seconds."""
    with post_room() as room:
        uid = room.address("recipient")
        commands = _commands(room.state, uid)
        found: dict[str, list[float]] = {name: [] for name in commands}
        _turn(commands, room)  # fills the page cache and the folders of compiled modules
        for _ in range(1 if quick else 12):
            for name, seconds in _turn(commands, room).items():
                found[name].append(1000 * seconds)
    for name, values in found.items():
        sheet.add(name, values, "ms CPU")
    for name in list(found)[1:]:
        sheet.compare(f"{name} / {FLOOR}", found[name], found[FLOOR])
    sheet.note(
        "User and system time of the one process (wait4(2)), not wall time; "
        "the post room that answers `send` is another process."
    )


def _commands(state: Path, uid: str) -> dict[str, list[str]]:
    return {
        FLOOR: [sys.executable, "-c", "pass"],
        "python -c 'import click'": [sys.executable, "-c", "import click"],
        "postroom --help": command_line(state, "--help"),
        "postroom send": command_line(state, "send", uid, "hello"),
    }


def _turn(commands: dict[str, list[str]], room: PostRoom) -> dict[str, float]:
    """Run each command once; seconds of processor time by name."""
    return {name: processor_time(command, room.env) for name, command in commands.items()}


def processor_time(command: list[str], env: dict[str, str]) -> float:
    """Seconds that a command uses.

    Raises:
        RuntimeError: it failed.
    """
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime
