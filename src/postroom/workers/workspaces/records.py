"""What is kept of a worker's workspace, in a file that the worker cannot write."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from postroom.errors import StateUnwritable
from postroom.identity.privatefile import replace as write_file
from postroom.protocol.modes import BRINGS, DIRECT

FILE = "workspace.json"


@dataclass(frozen=True, slots=True)
class Held:
    """A workspace that was begun.

    Attributes:
        path: the folder as the person named it.
        mode: how it is worked on (`protocol.modes`).
        top: the person's repository, "" if the folder is in none.
        branch: of the worker, in its repository and in the person's; "" for none.
        head: the person's commit that it began from, "" for none.
        base: the commit that its work is compared with.
        brought: the newest commit of its work that has been brought back.
        placed: the value that its branch in the person's repository was given last, "" for none.
        format: of the names of objects.
        shallow: commits whose parents the repository has not got.
        own: whether the workspace has a repository of the worker's own.
        objects: the places, inside, of the objects that it borrows.
        covered: marks of what the worker could not write at its last start, in a folder that it writes itself.
        lent: the folders of objects that were judged and told at the spawn; None in older records.
        begun: whether it was made to its end.
        notes: what the worker has not got, for people.
        left: what was not brought back, by its name in the workspace.
        made: git directories that it has made, on its branch or in a folder that it writes itself.
        origin: the person's branch that it began from, "" for none; None in a record from before there was one.
        began: the commit that its work was compared with at first; `base` is a later one of `origin`, once it has that.
        patterns: of further branches of the person that it sees.
        person: the place, inside, of those that it sees.
        moving: where its files, index and branch are being put: see `syncing.Move`; empty for nowhere.
        joining: the person's commit that its agent was to join with its work, and that work; empty once that counts.
        merged: the last merge of its branch into the person's, as long as it can be undone: see `taking.Taken`.
        large: files over the limit that were not committed and stay in its folder, by their names in it.
        let_in: those that a person has let in.
        brings: what a person should look at on its branch, sentences for people.
    """

    path: str
    mode: str
    top: str = ""
    branch: str = ""
    head: str = ""
    base: str = ""
    brought: str = ""
    placed: str = ""
    format: str = "sha1"
    shallow: tuple[str, ...] = ()
    own: bool = False
    objects: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()
    lent: tuple[str, ...] | None = None
    begun: bool = False
    notes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    origin: str | None = None
    began: str | None = None
    moving: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    person: str = ""
    joining: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    let_in: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The record in a worker's folder, None if there is none."""
        try:
            found: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(**{name: _frozen(value) for name, value in found.items()})

    def save(self, folder: Path) -> Self:
        """Write it to a worker's folder.

        Raises:
            StateUnwritable: the disk is full.
        """
        try:
            write_file(folder / FILE, json.dumps(asdict(self)).encode())
        except OSError as error:
            raise StateUnwritable(f"cannot write {folder / FILE}: {error.strerror}") from error
        return self

    @property
    def warnings(self) -> list[str]:
        """Sentences for people about the branch."""
        made = [BRINGS + name for name in self.made] if self.mode != DIRECT else []
        return [*made, *self.brings]

    def after(self, **changes: Any) -> Self:
        """The record with these fields changed."""
        return replace(self, **changes)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
