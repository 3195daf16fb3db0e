"""Node.js on this machine: where version managers put it, and which script needs it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

OLDEST = 18
"""Major version that the agents need at least."""

TIMEOUT = 5.0
"""Seconds that node has to say its version."""

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def shebang(head: str) -> str | None:
    """The node that a script names in its first line: a path, or `node`; None for a program of another kind."""
    line = head.partition("\n")[0]
    if not line.startswith("#!"):
        return None
    try:
        words = shlex.split(line[2:])
    except ValueError:
        return None
    named = [word for word in words if Path(word).name in {"node", "nodejs"}]
    return named[0] if named else None


def find(named: str, program: Path, home: Path | None, env: Mapping[str, str]) -> Path | None:
    """The node that runs a script: the one it names, the one beside it, else the first one that is new enough."""
    for candidate in _candidates(named, program, home, env):
        try:
            real = candidate.resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        if real.name in {"node", "nodejs"} and os.access(real, os.X_OK) and major(real) >= OLDEST:
            return real
    return None


def _candidates(
    named: str, program: Path, home: Path | None, env: Mapping[str, str]
) -> Iterator[Path]:
    if named.startswith("/"):
        yield Path(named)
    yield program.parent / "node"
    for folder in env.get("PATH", "").split(os.pathsep):
        if folder.startswith("/"):
            yield Path(folder) / "node"
    for folder in (*installed(home, env), *prefixes(home, env)):
        yield folder / "node"
    yield from map(Path, ("/usr/local/bin/node", "/opt/homebrew/bin/node", "/usr/bin/node"))


def major(node: Path) -> int:
    """Its major version: by its folder, else by asking it; 0 if it does not say."""
    for part in reversed(node.parts[:-1]):
        if found := _NUMBERS.fullmatch(part):
            return int(found[1])
    return _asked(node)


def version(node: Path) -> str:
    """Its version for people, "" if it does not say."""
    for part in reversed(node.parts[:-1]):
        if _NUMBERS.fullmatch(part):
            return part.removeprefix("v")
    found = _NUMBERS.match(_said(node))
    return ".".join(found.groups()) if found else ""


def _asked(node: Path) -> int:
    found = _NUMBERS.match(_said(node))
    return int(found[1]) if found else 0


def _said(node: Path) -> str:
    try:
        done = subprocess.run(
            [node, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            env={"PATH": "/usr/bin:/bin"},
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def mounts(node: Path) -> list[Path]:
    """What a script needs of an installation of node: the program; npm with it, where the folder is node's own."""
    prefix = node.parent.parent
    npm = prefix / "lib" / "node_modules" / "npm"
    if node.parent.name == "bin" and npm.is_dir() and _NUMBERS.search(prefix.as_posix()):
        return [node.parent, npm.resolve()]
    return [node]


def prefixes(home: Path | None, env: Mapping[str, str]) -> Iterator[Path]:
    """Folders of global commands of npm, as its environment and `~/.npmrc` say."""
    for name in ("npm_config_prefix", "NPM_CONFIG_PREFIX"):
        if env.get(name, "").startswith("/"):
            yield Path(env[name]) / "bin"
    if home is None:
        return
    try:
        lines = (home / ".npmrc").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "prefix":
            text = value.strip().strip("\"'").replace("${HOME}", str(home))
            yield Path(text.replace("~", str(home), 1) if text.startswith("~") else text) / "bin"


def installed(home: Path | None, env: Mapping[str, str]) -> Iterator[Path]:
    """Folders of programs in the installations of nvm, fnm, volta, asdf and mise, newest first of each."""
    for root, pattern in _managers(home, env):
        try:
            found = [path for path in root.glob(pattern) if path.is_dir()]
        except OSError:
            continue
        yield from sorted(found, key=_age)


def _age(path: Path) -> tuple[int, ...]:
    found = _NUMBERS.search(path.as_posix())
    return tuple(-int(number) for number in found.groups()) if found else (1,)


def _managers(home: Path | None, env: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """The root of each version manager and the pattern of its folders of programs."""
    known = (
        ("NVM_DIR", (".nvm",), "versions/node/*/bin"),
        ("FNM_DIR", (".local/share/fnm", ".fnm"), "node-versions/*/installation/bin"),
        ("VOLTA_HOME", (".volta",), "tools/image/node/*/bin"),
        ("VOLTA_HOME", (".volta",), "tools/image/packages/*/bin"),
        ("VOLTA_HOME", (".volta",), "tools/image/packages/@*/*/bin"),
        ("ASDF_DATA_DIR", (".asdf",), "installs/nodejs/*/bin"),
        ("MISE_DATA_DIR", (".local/share/mise",), "installs/node/*/bin"),
    )
    for variable, usual, pattern in known:
        roots = [Path(env[variable])] if env.get(variable, "").startswith("/") else []
        roots += [home / name for name in usual] if home is not None else []
        for root in dict.fromkeys(roots):
            yield root, pattern
