"""Processes of clients: whether one still lives, when it ends, and what it was started with."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

SECONDS = 2.0
"""Between two looks at a process, where the system does not tell of its end."""

_RUNS = {
    "codex": ("exec", "e", "review"),
    "gemini": ("-p", "--prompt"),
    "claude": ("-p", "--print"),
}
"""Words of a command line by which a client runs without anybody who watches."""


def began(pid: int) -> str:
    """What tells a process from a later one with its id; "" where it has gone, or the system does not say."""
    fields = _fields(pid)
    return fields[19] if fields else ""


def alive(pid: int, since: str = "") -> bool:
    """Whether the process lives, and is the one that `began` named `since`."""
    if pid <= 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's by now
    return not since or began(pid) == since


def headless(client: str, pid: int) -> bool:
    """Whether a client was started for one run that nobody watches."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return any(word in _RUNS.get(client, ()) for word in words[1:])


def has_terminal(pid: int, name: str, folder: str) -> bool:
    """Whether somebody can see what a client does that a server of its own serves: True where that cannot be known.

    The process itself has a terminal, or another one of the program `name` that works in `folder` has.
    """
    if _terminal(pid) is not False:
        return True
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdecimal() and place.stat().st_uid == os.geteuid():
                other = (place / "comm").read_text().strip() == name and _terminal(int(place.name))
                if other and str((place / "cwd").readlink()) == folder:
                    return True
    return False


def _terminal(pid: int) -> bool | None:
    """Whether a process has a controlling terminal; None where the system does not say."""
    fields = _fields(pid)
    return fields[4] != "0" if fields else None


def _fields(pid: int) -> list[str]:
    """What the system says of a process behind its name (proc_pid_stat(5)); empty where it says nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def when_gone(pid: int, call: Callable[[], None]) -> Callable[[], None]:
    """Have `call` done once when the process ends; returns what takes that back."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return _watched(pid, call)

    watched = True

    def forget() -> None:
        nonlocal watched
        if watched:  # else the descriptor is another's by now
            watched = False
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def gone() -> None:
        forget()
        call()

    loop.add_reader(descriptor, gone)
    return forget


def _watched(pid: int, call: Callable[[], None]) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def look() -> None:
        nonlocal timer
        if alive(pid):
            timer = loop.call_later(SECONDS, look)
        else:
            call()

    timer = loop.call_soon(look)

    def forget() -> None:
        timer.cancel()

    return forget
