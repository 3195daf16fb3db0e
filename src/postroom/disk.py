"""What a file system needs to be told so that a power cut takes nothing back."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when the file, or the names in the folder, at `path` are on disk.

    Raises:
        OSError: they cannot be brought there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
