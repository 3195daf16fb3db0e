"""The sessions that people have open in their own terminals, as rows beside those of their agents."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import bindparam, delete, func, insert, select, update

from postroom.store.schema import sessions
from postroom.store.session import Session, prepared, values_of


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session that has not ended.

    Attributes:
        uid: of its agent.
        owner: uid of the person whose terminal it is in.
        client: name of the program.
        key: by which that program knows it; no two of an owner and a client have the same.
        folder: in which it works.
        project: names the repository of that folder, "" for none.
        version: of the program.
        state: `busy`, `idle` or `gone`.
        state_at, heard_at: epoch seconds.
    """

    uid: str
    owner: str
    client: str
    key: str
    folder: str
    project: str
    version: str
    state: str
    state_at: float
    heard_at: float


_COLUMNS = [sessions.c[field.name] for field in fields(SessionRow)]
_ALL = prepared(select(*_COLUMNS).order_by(sessions.c.uid))
_BY_UID = prepared(select(*_COLUMNS).where(sessions.c.uid == bindparam("uid")))
_KNOWN_AS = prepared(
    select(*_COLUMNS).where(
        sessions.c.owner == bindparam("owner"),
        sessions.c.client == bindparam("client"),
        sessions.c.key == bindparam("key"),
    )
)
_OWNED = prepared(
    select(sessions.c.uid).where(sessions.c.owner == bindparam("owner")).order_by(sessions.c.uid)
)
_COUNT = prepared(
    select(func.count()).select_from(sessions).where(sessions.c.owner == bindparam("owner"))
)
_ADD = prepared(insert(sessions))
_CHANGE = prepared(update(sessions).where(sessions.c.uid == bindparam("which")))
_REMOVE = prepared(delete(sessions).where(sessions.c.uid == bindparam("which")))


class SessionStore:
    """Sessions by the uid of their agent."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[SessionRow]:
        """Every session."""
        return self._session.all(SessionRow, _ALL)

    def get(self, uid: str) -> SessionRow | None:
        """The session that the agent `uid` is; None for any other agent."""
        return self._session.first(SessionRow, _BY_UID, uid=uid)

    def known_as(self, owner: str, client: str, key: str) -> SessionRow | None:
        """The session of `owner` that `client` knows by `key`."""
        return self._session.first(SessionRow, _KNOWN_AS, owner=owner, client=client, key=key)

    def owned(self, owner: str) -> list[str]:
        """The uids of the sessions of a person."""
        return self._session.column(_OWNED, owner=owner)

    def count(self, owner: str) -> int:
        """The number of them."""
        return self._session.scalar(_COUNT, owner=owner) or 0

    def add(self, row: SessionRow) -> None:
        """Store a new session; its agent exists."""
        self._session.run(_ADD, values_of(row))

    def change(self, row: SessionRow) -> bool:
        """Store what has changed of a session; False if it has ended."""
        changed = values_of(row)
        return self._session.run(_CHANGE, {"which": changed.pop("uid"), **changed}) == 1

    def remove(self, uid: str) -> None:
        """Forget a session that has ended."""
        self._session.run(_REMOVE, {"which": uid})
