"""What the operator has opened of the machine to the lesser keys of an organisation."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from postroom.store.schema import openings
from postroom.store.session import Session, prepared

FOLDER, WALL = "folder", "wall"
"""Kinds of openings."""


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening.

    Attributes:
        kind: `folder` or `wall`.
        name: the real name of the folder, or the level of the wall.
        mode: of a folder: `copy` to be read, `direct` to be written itself, too; "" for a wall.
        opened_at: epoch seconds.
    """

    kind: str
    name: str
    mode: str
    opened_at: float


_COLUMNS = (openings.c.kind, openings.c.name, openings.c.mode, openings.c.opened_at)
_ALL = prepared(select(*_COLUMNS).order_by(openings.c.kind, openings.c.name))


class OpeningStore:
    """The openings of an organisation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def openings(self) -> list[Opening]:
        """All of them, in the order of their names."""
        return self._session.all(Opening, _ALL)

    def open(self, opening: Opening) -> None:
        """Store it, in place of one of the same kind and name."""
        self.close(opening.kind, opening.name)
        self._session.run(
            insert(openings).values(
                kind=opening.kind,
                name=opening.name,
                mode=opening.mode,
                opened_at=opening.opened_at,
            )
        )

    def close(self, kind: str, name: str) -> bool:
        """Forget it; False if there is none."""
        return (
            self._session.run(
                delete(openings).where(openings.c.kind == kind, openings.c.name == name)
            )
            == 1
        )
