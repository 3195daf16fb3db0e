"""The templates that Postroom brings, as files of this package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from postroom.errors import NotFound
from postroom.protocol.template_needs import Needs, needs

FOLDER = Path(__file__).parent / "files"
"""The folder of the files; a worker's record has the path of the one that it was spawned from."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """One of the templates.

    Attributes:
        name: for `postroom spawn`.
        path: of its file.
    """

    name: str
    path: Path

    @property
    def text(self) -> str:
        """Its TOML."""
        return self.path.read_text(encoding="utf-8")

    @property
    def needs(self) -> Needs:
        """What it needs of the machine."""
        return needs(self.text)


def names() -> tuple[str, ...]:
    """Their names, by alphabet."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def listed() -> tuple[Shipped, ...]:
    """All of them, by name."""
    return tuple(Shipped(name, FOLDER / f"{name}.toml") for name in names())


def shipped(name: str) -> Shipped:
    """The template called `name`.

    Raises:
        NotFound: there is none; the remedy names those that there are.
    """
    if name not in names():
        raise NotFound(
            f"Postroom brings no template {name!r}", remedy=f"there are {', '.join(names())}"
        )
    return Shipped(name, FOLDER / f"{name}.toml")
