"""A check of a template's program and files against this machine, before anything is made of it.

What this machine cannot show, such as a program in the workspace, only the start finds out.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from postroom.errors import InvalidTemplate
from postroom.protocol.template import PARAMETER, Template
from postroom.sandbox import python_home
from postroom.sandbox.arguments import PATHS

AGENT_FOLDER = "/opt/agent"
"""Folder of a template's files in the sandbox."""

_INSIDE = (PATHS.workspace, PATHS.state)
"""Folders that belong to the worker and outlive its starts: their later content is unknown here."""


def search_path(python: str) -> str:
    """The search path for programs in a sandbox whose interpreter is `python`."""
    programs = ["/usr/local/bin", "/usr/bin", "/bin"]
    if (folder := Path(python).parent).is_absolute():
        programs.insert(0, str(folder))
    return os.pathsep.join(programs)


def check_program(template: Template, shown: Sequence[str], *, all_shown: bool = False) -> None:
    """Refuse a command that visibly cannot start.

    Args:
        shown: folders of the machine that its sandbox shows without a mount.
        all_shown: without a wall, which shows the whole machine.
    """
    program = template.command[0]
    _check_files(template)
    if "/" in program:
        folder = os.path.normpath(program)
        if program.startswith("/") and not any(_below(folder, inside) for inside in _INSIDE):
            _check_path(program, _View(template, shown, all_shown))
        return
    search = template.env.get("PATH", search_path(sys.executable))
    folders = search.split(os.pathsep)
    if any(not f.startswith("/") or any(_below(f, i) for i in _INSIDE) for f in folders):
        return
    view = _View(template, shown, all_shown)
    if not any(view.shows(Path(f)) and _runs(Path(f) / program, view) for f in folders):
        raise InvalidTemplate(
            f"there is no program {program!r} in the sandbox, which looks in {search}",
            remedy=_where_it_is(program),
        )


class _View:
    """The parts of the machine that a sandbox shows."""

    def __init__(self, template: Template, shown: Sequence[str], all_shown: bool) -> None:
        folders = [*map(Path, shown), *map(Path, template.read_only), *python_home.folders()]
        self._folders = [name for folder in folders for name in (folder, folder.resolve())]
        self._all = all_shown

    def shows(self, path: Path) -> bool:
        return self._all or any(path.is_relative_to(folder) for folder in self._folders)


def _check_files(template: Template) -> None:
    for word in template.command:
        # In other text braces are left alone: they may be the program's own.
        if (place := PARAMETER.fullmatch(word)) is not None:
            raise InvalidTemplate(
                f"workstation.command names the parameter {word}, which the template does not declare",
                remedy=f'declare it below [overrides], such as {place[1]} = "its default"',
            )
        name = word.removeprefix(f"{AGENT_FOLDER}/")
        if name != word and name not in template.files:
            raise InvalidTemplate(
                f"workstation.command names {word}, and workstation.files has no {name!r}",
                remedy=f'put it next to the template, and in it: files = ["{name}"]',
            )
    program = template.command[0]
    if _below(program, AGENT_FOLDER):
        raise InvalidTemplate(
            f"{program} cannot be executed: a template's files are read-only data",
            remedy=f'begin with what runs it: command = ["python3", "{program}"]',
        )


def _check_path(program: str, view: _View) -> None:
    path = Path(program)
    if not view.shows(path):
        raise InvalidTemplate(
            f"the program {program} is not in the sandbox",
            remedy=f'show its folder below [compute]: read_only = ["{path.parent}"]',
        )
    if not path.exists():
        raise InvalidTemplate(f"the program {program} does not exist")
    if not _executable(path):
        raise InvalidTemplate(f"{program} cannot be executed", remedy=f"chmod +x {program}")
    if not view.shows(real := path.resolve()):
        raise InvalidTemplate(
            f"the program {program} leads to {real}, which is not in the sandbox",
            remedy=f'show its folder below [compute]: read_only = ["{real.parent}"]',
        )


def _runs(path: Path, view: _View) -> bool:
    return _executable(path) and view.shows(path.resolve())


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _where_it_is(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        return "install it, or name it by its whole path"
    folder = Path(found).resolve().parent
    return f"name it by its path, {found}, and show {folder} by compute.read_only"
