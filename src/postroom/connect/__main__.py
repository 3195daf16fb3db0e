"""`python -m postroom.connect` is `postroom connect run`: hooks begin it so, without the command line's imports."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path

from postroom.connect import places
from postroom.errors import PostroomError, StateUnwritable, exit_code
from postroom.inherited import settle
from postroom.observe import get_logger, to_file

LOCK = "POSTROOM_CONNECT_LOCK"
"""The descriptor of the lock that the hook has taken which began this process."""

LINGER = "POSTROOM_CONNECT_LINGER"
"""Seconds after the last session, in place of the usual ones."""


def main() -> int:
    """Run; returns the exit code. One that runs already is no error."""
    settle()
    log = get_logger("postroom.connect")  # not `__main__`, whose lines are in no file
    try:
        folder = places.folder()
        to_file(folder / places.LOG)
        if not _locked(folder / places.LOCK):
            return 0
        return asyncio.run(_main())
    except PostroomError as error:
        log.warning("%s", error)
        sys.stderr.write(f"postroom: {error}\n")
        return exit_code(error)
    except Exception:  # the log is where anybody would look: nobody reads stderr
        log.exception("run ends")
        raise


async def _main() -> int:
    from postroom.connect.run import LINGER as USUAL
    from postroom.connect.run import main as run

    serving = asyncio.ensure_future(run(linger=float(os.environ.get(LINGER, USUAL))))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        return 0
    return 0


def _locked(path: Path) -> bool:
    """Whether this process is the one; the lock lasts as long as it does."""
    given = os.environ.pop(LOCK, "")
    if given.isdecimal():
        os.set_inheritable(int(given), False)
        return True
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StateUnwritable(f"cannot lock {path}: {error.strerror}") from error
    return True


if __name__ == "__main__":
    sys.exit(main())
