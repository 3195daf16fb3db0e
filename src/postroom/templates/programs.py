"""Where a coding agent's program is installed on this machine, and which parts of the machine it consists of.

Nothing is run and no package manager is asked: the usual places are looked at. A program in a home folder is shown to
a sandbox piece by piece (its npm package, the packages that it needs, the node that runs it), never with the folder
around it. `values_of` makes of it the values of a template's parameters that stand for its program.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.errors import EnvironmentFault, InvalidTemplate, NotFound
from postroom.protocol.template_needs import MOUNTS, PROGRAM, SEARCH, Needs, needs
from postroom.sandbox.arguments import SHOWN
from postroom.templates import node as nodes

_HEAD = 512
"""Bytes of a program that are read to see what runs it."""

SHIMS = frozenset({"volta-shim", "mise", "asdf", "rtx", "fnm", "nodenv", "npx", "bunx"})
"""Programs that look for the real one when they are run; what they stand for is looked for in their folders."""

_PNPM = re.compile(r'"\$basedir/([^"]+)"\s+"\$@"')
"""The program behind a command that pnpm has installed."""

MOST = 48
"""Packages that one program may consist of; each becomes a mount."""

_MAX_BYTES = 1 << 20

_OWN = (PROGRAM, SEARCH, MOUNTS)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where to look.

    Attributes:
        home: of the person, None for one without.
        env: the environment of the command.
        folder: from which the command is given.
    """

    home: Path | None
    env: Mapping[str, str]
    folder: Path

    @classmethod
    def here(cls) -> Machine:
        """This machine, for who runs this process."""
        try:
            home = Path.home()
        except RuntimeError:
            home = None
        return cls(home, dict(os.environ), Path.cwd())


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was found.

    Attributes:
        path: where it was found: a link in most cases.
        real: the file itself, which runs in the sandbox.
        search: folders that it needs in its search path.
        mounts: folders and files of the machine that it needs, beside what every sandbox shows.
        version: as its package or its folder says, "" if neither does.
        node: the node that runs it, None for a program of its own.
    """

    name: str
    path: Path
    real: Path
    search: tuple[Path, ...] = ()
    mounts: tuple[Path, ...] = ()
    version: str = ""
    node: Path | None = None


def find(name: str, machine: Machine, install: str = "") -> Program:
    """The program called `name`, or at the path `name`.

    Args:
        install: the command that installs it, for the error.

    Raises:
        NotFound: it is nowhere; the remedy is how to install it.
        EnvironmentFault: it is there and cannot be run: what it needs is missing.
    """
    seen: set[Path] = set()
    for path in _candidates(name, machine):
        real = _real(path)
        if real is not None and real not in seen:
            seen.add(real)
            return _described(name, path, real, machine)
    raise NotFound(
        f"the program {Path(name).name!r} is not installed on this machine",
        remedy=install or "install it, or name it: --set program=PATH",
    )


def _candidates(name: str, machine: Machine) -> Iterator[Path]:
    if "/" in name:
        yield Path(name).expanduser().absolute()
        return
    for folder in _folders(machine):
        yield folder / name


def _folders(machine: Machine) -> Iterator[Path]:
    """Folders of programs, in the order in which they are looked at."""
    env = machine.env
    yield from (Path(f) for f in env.get("PATH", "").split(os.pathsep) if f.startswith("/"))
    yield machine.folder / "node_modules" / ".bin"
    yield from nodes.prefixes(machine.home, env)
    if (home := machine.home) is not None:
        for name in (
            *(".local/bin", "bin", ".claude/local/node_modules/.bin", ".opencode/bin"),
            *(".bun/bin", ".local/share/pnpm", ".npm-global/bin"),
        ):
            yield home / name
    yield from map(Path, ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin"))
    yield from nodes.installed(machine.home, env)


def _real(path: Path) -> Path | None:
    """The file behind `path`, through links and the commands of package managers; None for no program."""
    try:
        real = path.resolve(strict=True)
        if not real.is_file() or real.name in SHIMS:
            return None
        if (behind := _PNPM.search(_head(real))) is not None:
            real = (path.resolve().parent / behind[1]).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    head = _head(real)
    if not os.access(real, os.X_OK) or _is_shell(head):
        return None
    return real


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD * 8).decode("latin-1")
    except OSError:
        return ""


def _is_shell(head: str) -> bool:
    """Whether it is a script for a shell, such as a shim: it would look for the program in a home that is not there."""
    line = head.partition("\n")[0]
    return line.startswith("#!") and re.search(r"\b(ba|da|z|k)?sh\b", line) is not None


def _described(name: str, path: Path, real: Path, machine: Machine) -> Program:
    package = package_of(real)
    mounts = list(package_folders(package)) if package else [real]
    version = package_version(package) if package else _version_of(real)
    search: list[Path] = []
    node = None
    if (words := nodes.shebang(_head(real))) is not None:
        node = nodes.find(words, path, machine.home, machine.env)
        if node is None:
            raise EnvironmentFault(
                f"{real.name} is a script for node, and there is no node {nodes.OLDEST} or later",
                remedy="install Node.js: https://nodejs.org, or by nvm, fnm or volta",
            )
        search.append(node.parent)
        mounts += nodes.mounts(node)
    return Program(
        Path(name).name,
        path,
        real,
        tuple(folder for folder in search if not shown(folder)),
        tuple(dict.fromkeys(place for place in mounts if not shown(place))),
        version,
        node,
    )


def shown(place: Path) -> bool:
    """Whether every sandbox shows the place anyway."""
    return any(place.is_relative_to(folder) for folder in SHOWN)


_VERSION = re.compile(r"v?(\d+\.\d+\.\d+[\w.-]*)")


def _version_of(real: Path) -> str:
    """The version in a path such as `~/.local/share/claude/versions/2.1.197`."""
    for part in (real.name, real.parent.name, real.parent.parent.name):
        if found := _VERSION.fullmatch(part):
            return found[1]
    return ""


def package_of(program: Path) -> Path | None:
    """The folder of the package that has `program`: the next one with a name, below `node_modules`; else None."""
    for folder in program.parents:
        if folder.name == "node_modules":
            return None
        if "node_modules" in folder.parts and "name" in _document(folder):
            return folder
    return None


def package_folders(package: Path) -> tuple[Path, ...]:
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
    document = _document(package)
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


def package_version(package: Path) -> str:
    """The version of the package, "" if it says none."""
    found = _document(package).get("version")
    return found if isinstance(found, str) else ""


def _document(package: Path) -> dict[str, Any]:
    """The package's `package.json`; {} if it has none that can be read."""
    try:
        with (package / "package.json").open("rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def values_of(program: Program) -> dict[str, str]:
    """The values for a program that was found."""
    return {
        PROGRAM: str(program.real),
        SEARCH: "".join(f"{folder}:" for folder in program.search),
        MOUNTS: "\n".join(map(str, program.mounts)),
    }


def program_values(
    needed: Needs, values: Mapping[str, str], machine: Machine | None = None
) -> dict[str, str]:
    """The values for the program that a template needs; {} for a template without one, or if a person names all.

    Args:
        values: that a person has given. A program that they name is looked at where it is.

    Raises:
        NotFound: it is not installed; the remedy installs it.
        EnvironmentFault: it cannot be run here.
        InvalidTemplate: the template has no parameter for it.
    """
    if not needed.program or MOUNTS in values:
        return {}
    for name in _OWN:
        if name not in needed.parameters:
            raise InvalidTemplate(
                f"the template has [program] and no parameter {name!r}",
                remedy=f'declare it below [overrides]: {name} = ""',
            )
    named = values.get(PROGRAM) or needed.program
    found = values_of(find(named, machine or Machine.here(), needed.install))
    return {name: value for name, value in found.items() if name == PROGRAM or name not in values}


def refound(text: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values of a worker, with the program's new place where the old one is gone, as after an update.

    Raises:
        NotFound, EnvironmentFault: it is not there any more.
    """
    kept = dict(values)
    places = [kept.get(PROGRAM, ""), *kept.get(MOUNTS, "").splitlines()]
    if all(Path(place).exists() for place in places if place.startswith("/")):
        return kept
    needed = needs(text, values)
    return kept | (program_values(needed, {}) if needed.program else {})
