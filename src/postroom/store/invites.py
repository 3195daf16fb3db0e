"""Invites to an organisation, and how its agents have come in, as rows."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import bindparam, delete, func, insert, select, update

from postroom.store.schema import agents, invites
from postroom.store.session import Session, prepared, values_of

KEPT = 90 * 86400.0
"""Seconds that an invite is kept after its end."""


@dataclass(frozen=True, slots=True)
class InviteRow:
    """An invite, without its code; instants are epoch seconds, None for never.

    Attributes:
        sha256: of the code.
        kind: of the agents that join with it: `human` or `external`.
        scopes: of their keys: names, separated by spaces.
        uses: that are left.
        tries: wrong codes that came for it.
        made_by: uid.
    """

    id: str
    sha256: str
    kind: str
    scopes: str
    uses: int
    tries: int
    made_by: str
    made_at: float
    expires_at: float
    ended_at: float | None = None


_INVITE = [invites.c[each.name] for each in fields(InviteRow)]
_OF_ID = invites.c.id == bindparam("named")
_BY_ID = prepared(select(*_INVITE).where(_OF_ID))
_ALL = prepared(select(*_INVITE).order_by(invites.c.made_at.desc(), invites.c.id))
_NEW = prepared(insert(invites))
_FORGET = prepared(delete(invites).where(invites.c.expires_at < bindparam("before")))
_TRIED = prepared(update(invites).where(_OF_ID).values(tries=invites.c.tries + bindparam("wrong")))
_USE = prepared(
    update(invites)
    .where(
        _OF_ID,
        invites.c.uses > 0,
        invites.c.tries < bindparam("most"),
        invites.c.expires_at > bindparam("now"),
        invites.c.ended_at.is_(None),
    )
    .values(uses=invites.c.uses - 1)
)
_END = prepared(
    update(invites).where(_OF_ID, invites.c.ended_at.is_(None)).values(ended_at=bindparam("at"))
)
_JOINED = prepared(
    update(agents)
    .where(agents.c.uid == bindparam("who"))
    .values(
        joined=bindparam("way"), owner_email=bindparam("email"), grants_only=bindparam("closed")
    )
)
_COUNT = prepared(
    select(func.count())
    .select_from(agents)
    .where(
        agents.c.org == bindparam("of"),
        agents.c.joined == bindparam("way"),
        agents.c.retired_at.is_(None),
    )
)
_EMAIL = prepared(select(agents.c.owner_email).where(agents.c.uid == bindparam("who")))


class InviteStore:
    """The invites of an organisation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: InviteRow) -> None:
        """Store a new invite, and forget those that were over long before."""
        self._session.run(_FORGET, {"before": row.made_at - KEPT})
        self._session.run(_NEW, values_of(row))

    def get(self, invite: str) -> InviteRow | None:
        """The invite with that id, whatever became of it."""
        return self._session.first(InviteRow, _BY_ID, named=invite)

    def listed(self) -> list[InviteRow]:
        """All of them, the newest first."""
        return self._session.all(InviteRow, _ALL)

    def tried(self, invite: str, wrong: int) -> None:
        """Count `wrong` codes that came for an invite, if there is one of that id."""
        self._session.run(_TRIED, {"named": invite, "wrong": wrong})

    def use(self, invite: str, most: int, now: float) -> bool:
        """Take one use of an invite; False where it does not count at `now`, or `most` wrong codes came for it."""
        return self._session.run(_USE, {"named": invite, "most": most, "now": now}) == 1

    def end(self, invite: str, at: float) -> bool:
        """End an invite; False where it had ended, or there is none."""
        return self._session.run(_END, {"named": invite, "at": at}) == 1

    # ── agents ──────────────────────────────────────────────────────────────────────────────────────────

    def joined(self, uid: str, way: str, email: str, *, closed: bool) -> None:
        """Store how an agent has come in, what it says of its owner, and whether grants alone lead to it."""
        values = {"who": uid, "way": way, "email": email, "closed": closed}
        self._session.run(_JOINED, values)

    def email(self, uid: str) -> str:
        """What an agent says of its owner, "" for nothing. Nobody has checked it."""
        return self._session.scalar(_EMAIL, who=uid) or ""

    def count(self, org: str, way: str) -> int:
        """The agents of an organisation that have come in so."""
        return self._session.scalar(_COUNT, of=org, way=way) or 0
