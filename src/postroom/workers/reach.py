"""What a worker may have of the machine: decided here alone, on who asks for it.

The operator's key may give a worker any folder and any wall. Every other key, whatever its scopes and its
organisation, may give it what the operator has opened for that organisation (`postroom org open`), and what every
sandbox shows. What is never shown to anybody is `sandbox.never`'s to say.

A worker remembers whom it is judged for (`WorkerRecord.origin`, `by`): whose template it runs. A start by the
operator's key does not change that, or a lesser key could have its worker started with the operator's rights.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from postroom.errors import Forbidden, InvalidInput
from postroom.protocol.modes import COPY, DIRECT
from postroom.protocol.principal import OPERATOR_KEY
from postroom.protocol.template import Template
from postroom.sandbox import python_home
from postroom.sandbox.arguments import PATHS, SHOWN
from postroom.sandbox.never import real_name
from postroom.sandbox.port import Level
from postroom.sandbox.template_check import AGENT_FOLDER
from postroom.store.keys import FOLDER, Opening

BY = "by"
"""Key of `WorkerRecord.origin`: whom the worker is judged for: `operator`, or a uid; absent in older records."""

_OWN = (PATHS.workspace, PATHS.state, AGENT_FOLDER)


@dataclass(frozen=True, slots=True)
class Reach:
    """What somebody may give a worker.

    Attributes:
        org: the organisation.
        free: the operator's key: everything.
        known: whether it is known who asks; not of workers that an older version has spawned.
        folders: real names of opened folders, each with its mode (`copy` or `direct`).
        wall: the weakest level of a wall.
    """

    org: str
    free: bool = False
    known: bool = True
    folders: Mapping[Path, str] = field(default_factory=dict, hash=False)
    wall: Level = Level.ENFORCED

    @classmethod
    def of(cls, by: str, org: str, openings: Iterable[Opening]) -> Reach:
        """That of `by`: `operator`, a uid, or "" for nobody knows whom."""
        found = list(openings)
        wall = Level.ENFORCED
        for opening in found:
            if opening.kind != FOLDER and Level(opening.name).weaker_than(wall):
                wall = Level(opening.name)
        folders = {Path(each.name): each.mode for each in found if each.kind == FOLDER}
        return cls(org, by == OPERATOR_KEY, bool(by), folders, wall)

    def refuse_wall(self, level: Level) -> None:
        """Raise Forbidden for a wall that is weaker than may be."""
        if not self.free and level.weaker_than(self.wall):
            called = "no wall" if level is Level.NONE else f"a {level} wall"
            raise self._forbidden(f"{called} is for the operator's key", f"--wall {level}")

    def refuse_place(self, place: Path, mode: str = COPY) -> None:
        """Raise Forbidden for a place of the machine that is not open.

        Args:
            place: its real name.
            mode: `direct` to write it, else it is read.
        """
        if self.free:
            return
        for folder, opened in self.folders.items():
            if place.is_relative_to(folder) and (mode != DIRECT or opened == DIRECT):
                return
        what = "is not open to be written" if mode == DIRECT else "is not open"
        words = shlex.quote(str(place)) + (f" --as {DIRECT}" if mode == DIRECT else "")
        raise self._forbidden(f"{place} of the post room's machine {what}", words)

    def refuse_named(self, path: str, mode: str = COPY) -> None:
        """`refuse_place` for a path as somebody names it, whether it leads to something or not."""
        if self.free:
            return
        try:
            place = real_name(Path(path))
        except (InvalidInput, ValueError):  # so that nobody learns what there is
            place = Path(posixpath.normpath(path.replace("\0", "?")))
        self.refuse_place(place, mode)

    def refuse_template(self, template: Template) -> None:
        """`refuse_named` for each place of the machine that a template names and not every sandbox shows."""
        if self.free:
            return
        for folder in template.read_only:
            if not shown_anyway(folder):
                self.refuse_named(folder)
        for words in (template.command, *(server.command for server in template.servers)):
            program = posixpath.normpath(words[0]) if words else ""
            if program.startswith("/") and not _is_brought(program):
                self.refuse_named(program)

    def _forbidden(self, what: str, words: str) -> Forbidden:
        unknown = "" if self.known else ", and who has spawned this worker is not known"
        remedy = f"the operator opens it by: postroom org open {self.org} {words}"
        if not self.known:
            remedy += "; or takes the worker over by: postroom restart NICK"
        return Forbidden(
            f"{what}, and the organisation {self.org} has not got it{unknown}", remedy=remedy
        )


def given_by(before: Mapping[str, str], by: str, *, template: bool) -> str:
    """Whom a worker is judged for after a restart.

    Args:
        before: its record's origin.
        by: who restarts it.
        template: they give it a new one.
    """
    known = before.get(BY, "")
    if by == OPERATOR_KEY:
        return known or by
    return by if template else known


def shown_anyway(path: str) -> bool:
    """Whether every sandbox shows what has this path, at this path."""
    if not _below(posixpath.normpath(path), SHOWN):
        return False
    return any(Path(path).resolve().is_relative_to(Path(place).resolve()) for place in SHOWN)


def _is_brought(program: str) -> bool:
    """Whether a program lies in what every sandbox shows, or in what is the worker's own inside."""
    if _below(program, _OWN) or shown_anyway(program):
        return True
    return any(Path(program).is_relative_to(folder) for folder in python_home.folders())


def _below(path: str, places: Iterable[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(place) for place in places)
