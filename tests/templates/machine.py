"""Made-up installations, laid out as npm, version managers and native installers lay them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from postroom.templates.programs import Machine

ELF = b"\x7fELF made up"


def machine(home: Path, *path: Path, folder: Path | None = None, **env: str) -> Machine:
    """A machine with that home, whose search path is `path`."""
    words = ":".join(map(str, path))
    return Machine(home, {"PATH": words, **env}, folder or home)


def executable(path: Path, content: bytes | str = ELF) -> Path:
    """A program at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o755)
    return path


def link(path: Path, target: Path) -> Path:
    """A link at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def package(
    modules: Path,
    name: str,
    *,
    version: str = "1.2.3",
    needs: Mapping[str, str] | None = None,
    program: str = "",
    content: bytes | str = ELF,
) -> Path:
    """A package below a `node_modules` folder, with a program at `bin/PROGRAM`."""
    folder = modules / name
    folder.mkdir(parents=True, exist_ok=True)
    document = {"name": name, "version": version, "optionalDependencies": dict(needs or {})}
    (folder / "package.json").write_text(json.dumps(document))
    if program:
        executable(folder / "bin" / program, content)
    return folder


def node(prefix: Path, said: str = "v20.1.2") -> Path:
    """A program that says it is this version of node."""
    return executable(prefix / "bin" / "node", f"#!/bin/sh\necho {said}\n")
