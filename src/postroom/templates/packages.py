"""The npm package that a program belongs to, and the packages that it needs, as folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from postroom.errors import EnvironmentFault

MOST = 48
"""Packages that one program may consist of; each becomes a mount."""

_MAX_BYTES = 1 << 20


def of(program: Path) -> Path | None:
    """The folder of the package that has `program`: the next one with a name, below `node_modules`; else None."""
    for folder in program.parents:
        if folder.name == "node_modules":
            return None
        if "node_modules" in folder.parts and "name" in read(folder):
            return folder
    return None


def folders(package: Path) -> tuple[Path, ...]:
    """The package and all that it needs and is installed, outermost first and none inside another.

    Raises:
        EnvironmentFault: these are too many.
    """
    found: dict[Path, None] = {}
    waiting = [package]
    while waiting:
        folder = waiting.pop()
        if folder in found:
            continue
        found[folder] = None
        waiting += _needed(folder)
        # What lies in a folder of the list needs no mount of its own, but may need others.
        if sum(not _inside(each, found) for each in found) > MOST:
            raise EnvironmentFault(
                f"{package.name} is installed with over {MOST} packages beside it",
                remedy="install it by itself: npm install -g",
            )
    return tuple(folder for folder in found if not _inside(folder, found))


def _inside(folder: Path, others: dict[Path, None]) -> bool:
    return any(parent in others for parent in folder.parents)


def _needed(package: Path) -> Iterator[Path]:
    document = read(package)
    for key in ("dependencies", "optionalDependencies"):
        names = document.get(key)
        for name in names if isinstance(names, dict) else ():
            if (found := _beside(package, name)) is not None:
                yield found


def _beside(package: Path, name: str) -> Path | None:
    """The folder of the package `name` as node finds it from `package`."""
    if ".." in Path(name).parts or name.startswith("/"):
        return None
    for folder in (package, *package.parents):
        candidate = folder / "node_modules" / name
        if folder.name != "node_modules" and candidate.is_dir():
            return candidate.resolve()
    return None


def version(package: Path) -> str:
    """The version of the package, "" if it says none."""
    found = read(package).get("version")
    return found if isinstance(found, str) else ""


def read(package: Path) -> dict[str, Any]:
    """The package's `package.json`; {} if it has none that can be read."""
    try:
        with (package / "package.json").open("rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
