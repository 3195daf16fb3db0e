"""Whom agents let in, as rows; who may reach whom over all organisations; how agents come into this one.

A grant of a person covers the agents that they own, on both sides: who they let in reaches those too, and what lets
them in lets those in. Grants are rows of the granter's organisation, and read by all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, delete, select, update

from postroom.store.agents import Agent
from postroom.store.schema import EVERYWHERE, SET_ASIDE, admissions, grant_requests, grants
from postroom.store.session import Session, among, prepared, upsert, values_of


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One agent has let another in; instants are epoch seconds, None for never.

    Attributes:
        granter, grantee, made_by: uids.
        scopes: names, separated by spaces.
    """

    id: str
    granter: str
    grantee: str
    scopes: str
    made_by: str
    made_at: float
    expires_at: float | None = None
    revoked_at: float | None = None

    def covers(self, scope: str, now: float) -> bool:
        """Whether it lets in for `scope`."""
        ends = (each for each in (self.revoked_at, self.expires_at) if each is not None)
        return all(now < end for end in ends) and scope in self.scopes.split()


@dataclass(frozen=True, slots=True)
class GrantRequestRow:
    """One agent asks another to be let in; `state` is `pending`, `allowed` or `denied`."""

    id: str
    granter: str
    grantee: str
    scopes: str
    reason: str
    asked_at: float
    state: str = "pending"
    answered_by: str = ""
    answered_at: float | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """How agents come into the organisation, and whether its agents are reached by grants alone."""

    registration: str = "invite"
    grants_only: bool = False


@dataclass(frozen=True, slots=True)
class Reached:
    """An agent that is asked for, with what decides whether it is reached.

    Attributes:
        owner: uid of the person it belongs to, "" for none.
        grants_only: it, or its organisation, is reached by grants alone.
        joined: `invite`, `open`, or "" for an agent that did not join.
    """

    agent: Agent
    owner: str
    grants_only: bool
    joined: str


_agents, _sessions = EVERYWHERE.agents, EVERYWHERE.sessions
_GRANT = [grants.c[each.name] for each in fields(GrantRow)]
_GRANT_ANYWHERE = [EVERYWHERE.grants.c[each.name] for each in fields(GrantRow)]
_REQUEST = [grant_requests.c[each.name] for each in fields(GrantRequestRow)]
_PUT = upsert(
    grants,
    ["granter", "grantee"],
    ["id", "scopes", "made_by", "made_at", "expires_at", "revoked_at"],
)
_BY_ID = prepared(select(*_GRANT).where(grants.c.id == bindparam("named")))
_OF_GRANTERS = prepared(
    select(*_GRANT).where(among(grants.c.granter, "granters")).order_by(grants.c.made_at.desc())
)
_ALL = prepared(select(*_GRANT).order_by(grants.c.made_at.desc()))
_TO = prepared(
    select(*_GRANT_ANYWHERE)
    .where(among(EVERYWHERE.grants.c.grantee, "grantees"))
    .order_by(EVERYWHERE.grants.c.made_at.desc())
)
_BETWEEN = prepared(
    select(*_GRANT_ANYWHERE).where(
        among(EVERYWHERE.grants.c.granter, "granters"),
        among(EVERYWHERE.grants.c.grantee, "grantees"),
    )
)
_REVOKE = prepared(
    update(grants)
    .where(grants.c.id == bindparam("named"), grants.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("at"))
)
_AGENT = [_agents.c[each.name] for each in fields(Agent)]
_FOUND = select(
    *_AGENT, _agents.c.owner, _agents.c.grants_only, _agents.c.joined, _sessions.c.owner
).select_from(_agents.outerjoin(_sessions, _sessions.c.uid == _agents.c.uid))
_BY_UID = prepared(_FOUND.where(_agents.c.uid == bindparam("uid")))
_BY_ADDRESS = prepared(
    _FOUND.where(
        _agents.c.org == bindparam("of"),
        _agents.c.nick == bindparam("nick"),
        _agents.c.retired_at.is_(None),
    )
)
_ADMISSION = prepared(
    select(EVERYWHERE.admissions.c.registration, EVERYWHERE.admissions.c.grants_only).where(
        EVERYWHERE.admissions.c.org == bindparam("of")
    )
)
_ADMIT = upsert(admissions, ["org"], ["registration", "grants_only"])
_ASK = upsert(
    grant_requests,
    ["granter", "grantee"],
    ["id", "scopes", "reason", "asked_at", "state", "answered_by", "answered_at"],
)
_ASKED = prepared(
    select(*_REQUEST)
    .where(among(grant_requests.c.granter, "granters"))
    .order_by(grant_requests.c.asked_at.desc())
)
_ASKED_ALL = prepared(select(*_REQUEST).order_by(grant_requests.c.asked_at.desc()))
_ASKED_ID = prepared(select(*_REQUEST).where(grant_requests.c.id == bindparam("named")))
_ANSWER = prepared(
    update(grant_requests)
    .where(grant_requests.c.id == bindparam("named"), grant_requests.c.state == "pending")
    .values(state=bindparam("then"), answered_by=bindparam("by"), answered_at=bindparam("at"))
)


class GrantStore:
    """Grants and requests of this organisation, and what all organisations have let in."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # ── over all organisations ──────────────────────────────────────────────────────────────────────────

    def reached(self, uid: str = "", *, org: str = "", nick: str = "") -> Reached | None:
        """The agent with that uid, or of that name in that organisation; None where there is none, or it is retired."""
        rows = (
            self._session.rows(_BY_UID, uid=uid)
            if uid
            else self._session.rows(_BY_ADDRESS, of=org, nick=nick)
        )
        values = tuple(rows[0]) if rows else ()
        agent = Agent(*values[: len(_AGENT)]) if values else None
        of_org = self.admission(agent.org if agent else org).grants_only
        if agent is None or agent.retired or SET_ASIDE in agent.org:
            return None
        owner, grants_only, joined, person = values[len(_AGENT) :]
        return Reached(agent, person or owner, bool(grants_only) or of_org, joined)

    def between(self, granters: Collection[str], grantees: Collection[str]) -> list[GrantRow]:
        """The grants of any of `granters` to any of `grantees`, ended ones too."""
        return self._session.all(
            GrantRow, _BETWEEN, granters=list(granters), grantees=list(grantees)
        )

    def to(self, grantees: Collection[str]) -> list[GrantRow]:
        """The grants to any of `grantees` in all organisations, the newest first, ended ones too."""
        return self._session.all(GrantRow, _TO, grantees=list(grantees))

    def admission(self, org: str) -> Admission:
        """How agents come into `org`, and whether it is reached by grants alone."""
        return self._session.first(Admission, _ADMISSION, of=org) or Admission()

    # ── of this organisation ────────────────────────────────────────────────────────────────────────────

    def put(self, row: GrantRow) -> None:
        """Store a grant, in place of the one of the same pair."""
        self._session.run(_PUT, values_of(row))

    def grant(self, grant: str) -> GrantRow | None:
        """The grant with that id."""
        return self._session.first(GrantRow, _BY_ID, named=grant)

    def of(self, granters: Collection[str] | None = None) -> list[GrantRow]:
        """The grants of those agents, or of all, the newest first, ended ones too."""
        if granters is None:
            return self._session.all(GrantRow, _ALL)
        return self._session.all(GrantRow, _OF_GRANTERS, granters=list(granters))

    def revoke(self, grant: str, at: float) -> bool:
        """End a grant; False where it had ended, or there is none."""
        return self._session.run(_REVOKE, {"named": grant, "at": at}) == 1

    def admit(self, admission: Admission) -> None:
        """Store how agents come into the organisation."""
        self._session.run(_ADMIT, values_of(admission))

    def ask(self, row: GrantRequestRow) -> None:
        """Store a request, in place of the one of the same pair."""
        self._session.run(_ASK, values_of(row))

    def asked(self, granters: Iterable[str] | None = None) -> list[GrantRequestRow]:
        """The requests to those agents, or to all, the newest first."""
        if granters is None:
            return self._session.all(GrantRequestRow, _ASKED_ALL)
        return self._session.all(GrantRequestRow, _ASKED, granters=list(granters))

    def request(self, request: str) -> GrantRequestRow | None:
        """The request with that id."""
        return self._session.first(GrantRequestRow, _ASKED_ID, named=request)

    def answer(self, request: str, state: str, by: str, at: float) -> bool:
        """Answer a request; False where it was answered, or there is none."""
        return (
            self._session.run(_ANSWER, {"named": request, "then": state, "by": by, "at": at}) == 1
        )

    def remove_of(self, uid: str) -> None:
        """Forget all grants and requests of an agent of this organisation whose address is gone."""
        for table in (grants, grant_requests):
            self._session.run(delete(table).where(table.c.granter == uid))
