"""Compiles Python modules for the sidecars, and for the next start of a post room.

A sandbox sees the installation read-only. A module that is not compiled yet would be compiled anew by every sidecar,
which takes longer than the rest of a start; some installers leave it so. The post room itself writes no compiled
modules: its files are for its user alone, and others may share the installation.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from postroom.bus.parent_death import die_with_parent
from postroom.observe import get_logger

DEADLINE = 60.0
"""Seconds to compile everything; it takes two."""

MAINS = ("postroom.sidecar.main", "postroom.control.org")
"""Importing these compiles every module of a sidecar and of a post room."""

FORBIDDING = "PYTHONDONTWRITEBYTECODE"

log = get_logger(__name__)


async def compile_modules(umask: int = -1) -> None:
    """Compile what `MAINS` import, unless it is compiled; a read-only installation stays as it is.

    Args:
        umask: for the files; -1 for this process's.
    """
    if is_compiled():
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", f"import {', '.join(MAINS)}"),
        env={key: value for key, value in os.environ.items() if key != FORBIDDING},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=partial(_prepare, umask, die_with_parent()),
    )
    try:
        async with asyncio.timeout(DEADLINE):
            await process.wait()
    except TimeoutError:
        log.warning("Postroom could not be compiled in %g s: workers start slowly", DEADLINE)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    log.debug("Postroom is %s", "compiled" if is_compiled() else "not compiled: read-only?")


def _prepare(umask: int, arm: Callable[[], None] | None) -> None:
    # uvloop starts no process with a `umask`, so the process sets it itself.
    if umask >= 0:
        os.umask(umask)
    if arm is not None:
        arm()


def is_compiled() -> bool:
    """Whether the modules were compiled since they last changed."""
    return all(map(_is_compiled, MAINS))


def _is_compiled(module: str) -> bool:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin)
    try:
        return Path(cache_from_source(source)).stat().st_mtime >= source.stat().st_mtime
    except (OSError, NotImplementedError):
        return False
