"""Compiled Python for the sidecars.

Sandboxes see the installation read-only, so what is not compiled when they start is compiled by each of them anew,
which takes longer than all the rest of a start. Some installers leave it at that.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from postroom.bus.parent_death import die_with_parent
from postroom.observe import get_logger

DEADLINE = 60.0
"""Seconds for it all; it takes two."""

MAIN = "postroom.sidecar.main"
"""Importing it compiles everything that a sidecar needs."""

FORBIDDING = "PYTHONDONTWRITEBYTECODE"

log = get_logger(__name__)


async def compile_sidecar() -> None:
    """Compile what a sidecar imports, unless it was; where it cannot be written, nothing changes."""
    if is_compiled():
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", f"import {MAIN}"),
        env={key: value for key, value in os.environ.items() if key != FORBIDDING},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=die_with_parent(),
    )
    try:
        async with asyncio.timeout(DEADLINE):
            await process.wait()
    except TimeoutError:
        log.warning("the sidecar could not be compiled in %g s: workers start slowly", DEADLINE)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    log.debug("the sidecar is %s", "compiled" if is_compiled() else "not compiled: read-only?")


def is_compiled() -> bool:
    """Whether the sidecar's last module was compiled since it was changed."""
    spec = find_spec(MAIN)
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin)
    try:
        return Path(cache_from_source(source)).stat().st_mtime >= source.stat().st_mtime
    except (OSError, NotImplementedError):
        return False
