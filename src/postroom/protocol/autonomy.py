"""How much a coding agent does without asking, as a person sets it for one worker. Pure.

It is set for good, or until one task ends; what is set for a task counts in the turns for that task alone, so nothing
has to end it. What the template denies stays denied.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any


class Autonomy(StrEnum):
    """What is done unasked beside what rules allow; `EDITS` are those of files that lie open in its folder."""

    ASK = "ask"
    EDITS = "edits"
    ALL = "all"


MAX_TASKS = 20
"""Tasks for which one worker's autonomy is set at once."""

EDITORS = frozenset({
    *("edit", "write", "multiedit", "notebookedit"),
    *("write_file", "edit_file", "create_file", "replace", "str_replace", "apply_patch"),
})  # fmt: skip
"""Tools that change files and do nothing else, in small letters."""

_PATHS = frozenset({
    *("path", "paths", "filepath", "filepaths", "notebookpath", "absolutepath", "abspath"),
    *("file", "files", "filename", "filenames", "targetfile", "target", "destination", "dest"),
    *("movepath", "oldpath", "newpath"),
})  # fmt: skip
_ELSE = frozenset({
    *("command", "commands", "cmd", "script", "code", "args", "arguments", "argv"),
    *("url", "urls", "uri", "uris"),
})  # fmt: skip
"""Fields by which a tool would do something else."""

_BY_PATH = frozenset({"changes", "edits", "files"})
"""Fields that may be a table by the path of a file."""


def word_of(kept: Mapping[str, str], *, autonomous: bool, task: str = "") -> Autonomy:
    """How much is done unasked in a turn for `task`.

    Args:
        kept: what people have set: id of a task, or "" for all turns, to an `Autonomy`.
        autonomous: the template's word, where people have set none.
    """
    said = kept.get(task) or kept.get("") or (Autonomy.ALL if autonomous else Autonomy.ASK)
    return Autonomy(said) if said in set(Autonomy) else Autonomy.ASK


def is_edit(tool: str, given: Mapping[str, Any], folder: str) -> bool:
    """Whether a use of a tool changes nothing but files in `folder` that do not begin with a dot, nor lie below such.

    What begins with a dot may be run by a program that reads it: hooks, settings of editors and of agents.
    """
    if tool.lower() not in EDITORS:
        return False
    found = list(_named(given))
    paths = [value for name, value in found if name in _PATHS]
    return (
        bool(paths)
        and not any(name in _ELSE for name, _ in found)
        and all(_lies_open(path, folder) for path in paths)
    )


def _named(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of an input that is no table, with the plain name of the field that it stands in."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            if name in _BY_PATH and isinstance(one, Mapping | str):
                yield "path", key
            yield from _named(one, str(key).replace("_", "").replace("-", "").lower())
    elif isinstance(value, list):
        for one in value:
            yield from _named(one, name)
    else:
        yield name, value


def _lies_open(path: object, folder: str) -> bool:
    if not isinstance(path, str) or not path or path.startswith("~") or not folder:
        return False
    whole = posixpath.normpath(posixpath.join(folder, path))
    below = whole.removeprefix(posixpath.normpath(folder).rstrip("/") + "/")
    return below != whole and not any(part.startswith(".") for part in below.split("/"))
