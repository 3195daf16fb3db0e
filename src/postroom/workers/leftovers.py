"""Folders of removed workers: found, measured and deleted."""

from __future__ import annotations

import math
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import StateUnwritable
from postroom.protocol.ids import is_uid
from postroom.sandbox import usage


@dataclass(frozen=True, slots=True)
class Leftover:
    """The folder of a removed worker; its size in bytes is None if it cannot be counted."""

    uid: str
    folder: Path
    size: int | None


def folders(workers: Path) -> list[Path]:
    """The workers' folders in `workers`."""
    try:
        names = sorted(entry.name for entry in os.scandir(workers) if entry.is_dir())
    except FileNotFoundError:
        return []
    return [workers / name for name in names if is_uid(name)]


def measured(folder: Path) -> Leftover:
    """`folder` with its size."""
    size = usage.disk([folder], sys.maxsize)
    return Leftover(folder.name, folder, None if math.isinf(size) else int(size))


def delete(folder: Path) -> None:
    """Delete a worker's folder with all that is in it, without following links; StateUnwritable if that fails."""
    try:
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o700)  # noqa: PTH101 (the agent may have taken our permission away)
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StateUnwritable(
            f"cannot delete {error.filename}: {error.strerror}", remedy=f"delete {folder} yourself"
        ) from error
