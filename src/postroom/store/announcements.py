"""Announcements of agents, as rows of the projection."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import bindparam, select

from postroom.store.messages import page
from postroom.store.schema import announcements
from postroom.store.session import Session, insert_new, prepared, values_of


@dataclass(frozen=True, slots=True)
class AnnouncementRow:
    """What an agent announced; `seq` is its sequence in OUTBOX, `at` when it was stored."""

    seq: int
    id: str
    sender: str
    text: str
    message: str
    at: float


_ROW = [announcements.c[field.name] for field in fields(AnnouncementRow)]

_NEW = insert_new(announcements)
_OF = select(*_ROW).where(announcements.c.sender == bindparam("of")).limit(bindparam("most"))
_BEFORE = prepared(
    _OF.where(announcements.c.seq < bindparam("past")).order_by(announcements.c.seq.desc())
)
_AFTER = prepared(_OF.where(announcements.c.seq > bindparam("past")).order_by(announcements.c.seq))
_BY_ID = prepared(
    select(*_ROW).where(
        announcements.c.sender == bindparam("sender"), announcements.c.id == bindparam("made")
    )
)
_HAS = prepared(select(announcements.c.seq).where(announcements.c.seq == bindparam("at")))


class AnnouncementStore:
    """What agents have announced."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def insert(self, row: AnnouncementRow) -> bool:
        """Store an announcement; False without effect if its sender has used that id before."""
        return self._session.run(_NEW, values_of(row)) == 1

    def by_id(self, sender: str, announcement: str) -> AnnouncementRow | None:
        """The announcement of `sender` with that id."""
        return self._session.first(AnnouncementRow, _BY_ID, sender=sender, made=announcement)

    def has(self, seq: int) -> bool:
        """Whether that record of OUTBOX is an announcement that is kept."""
        return self._session.scalar(_HAS, at=seq) is not None

    def of(
        self, sender: str, *, limit: int, before: int = 0, after: int | None = None
    ) -> list[AnnouncementRow]:
        """Those of `sender`, oldest first: the newest `limit`, or the first `limit` past `after`."""
        values = {"of": sender, "most": page(limit)}
        if after is not None:
            return self._session.all(AnnouncementRow, _AFTER, past=after, **values)
        return self._session.all(AnnouncementRow, _BEFORE, past=before or 2**62, **values)[::-1]
