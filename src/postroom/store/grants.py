"""Whom agents let in, as rows; who may reach whom over all organisations; how agents come into this one.

A grant of a person covers the agents that they own, on both sides: who they let in reaches those too, and what lets
them in lets those in. Grants are rows of the granter's organisation, and read by all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from sqlalchemy import and_, bindparam, delete, or_, select, update

from postroom.store.agents import Agent
from postroom.store.schema import (
    EVERYWHERE,
    SET_ASIDE,
    admissions,
    agents,
    grant_requests,
    grants,
    sessions,
)
from postroom.store.session import Session, among, prepared, upsert, values_of


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One agent has let another in; instants are epoch seconds, None for never.

    Attributes:
        granter, grantee, made_by: uids.
        scopes: names, separated by spaces.
        called: how the granter has named the grantee, where it must not learn whether there is such an agent.
    """

    id: str
    granter: str
    grantee: str
    scopes: str
    made_by: str
    made_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    called: str = ""

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

    @property
    def sides(self) -> frozenset[str]:
        """Whose grants count for it: its own, and those of who owns it."""
        return frozenset({self.agent.uid, self.owner} - {""})


_agents, _sessions = EVERYWHERE.agents, EVERYWHERE.sessions
_GRANT = [grants.c[each.name] for each in fields(GrantRow)]
_GRANT_ANYWHERE = [EVERYWHERE.grants.c[each.name] for each in fields(GrantRow)]
_REQUEST = [grant_requests.c[each.name] for each in fields(GrantRequestRow)]
_PUT = upsert(
    grants,
    ["granter", "grantee"],
    ["id", "scopes", "made_by", "made_at", "expires_at", "revoked_at", "called"],
)
_BY_ID = prepared(select(*_GRANT).where(grants.c.id == bindparam("named")))
_OF_GRANTERS = prepared(select(*_GRANT).where(among(grants.c.granter, "granters")))
_ALL = prepared(select(*_GRANT))
_TO = prepared(select(*_GRANT_ANYWHERE).where(among(EVERYWHERE.grants.c.grantee, "grantees")))
_BETWEEN = prepared(
    select(*_GRANT_ANYWHERE).where(
        among(EVERYWHERE.grants.c.granter, "granters"),
        among(EVERYWHERE.grants.c.grantee, "grantees"),
    )
)
_any = EVERYWHERE.grants
_theirs = (_agents.c.uid, _agents.c.owner, _sessions.c.owner)
_TIES = prepared(
    select(_agents.c.uid, _any.c.granter, _any.c.scopes, _any.c.expires_at, _any.c.revoked_at)
    .select_from(_agents.outerjoin(_sessions, _sessions.c.uid == _agents.c.uid))
    .join(
        _any,
        or_(
            and_(_any.c.granter.in_(_theirs), among(_any.c.grantee, "sides")),
            and_(_any.c.grantee.in_(_theirs), among(_any.c.granter, "sides")),
        ),
    )
    .where(_agents.c.retired_at.is_(None))
)
_REVOKE = prepared(
    update(grants)
    .where(grants.c.id == bindparam("named"), grants.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("at"))
)
_AGENT = [_agents.c[each.name] for each in fields(Agent)]
_FOUND = select(
    *_AGENT,
    *(_agents.c.owner, _agents.c.grants_only, _agents.c.joined, _sessions.c.owner),
    EVERYWHERE.admissions.c.grants_only,
).select_from(
    _agents.outerjoin(_sessions, _sessions.c.uid == _agents.c.uid).outerjoin(
        EVERYWHERE.admissions, EVERYWHERE.admissions.c.org == _agents.c.org
    )
)
_BY_UID = prepared(_FOUND.where(_agents.c.uid == bindparam("uid")))
_BY_ADDRESS = prepared(
    _FOUND.where(
        _agents.c.org == bindparam("of"),
        _agents.c.nick == bindparam("nick"),
        _agents.c.retired_at.is_(None),
    )
)
_granted = select(EVERYWHERE.grants.c.granter).where(among(EVERYWHERE.grants.c.grantee, "grantees"))
_HOSTS = prepared(
    select(_agents.c.org)
    .select_from(_agents.outerjoin(_sessions, _sessions.c.uid == _agents.c.uid))
    .where(
        or_(
            *(each.in_(_granted) for each in (_agents.c.uid, _agents.c.owner, _sessions.c.owner)),
            *(among(each, "grantees") for each in (_agents.c.owner, _sessions.c.owner)),
        )
    )
    .distinct()
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
_ASKED = prepared(select(*_REQUEST).where(among(grant_requests.c.granter, "granters")))
_ASKED_ALL = prepared(select(*_REQUEST))
_ASKED_ID = prepared(select(*_REQUEST).where(grant_requests.c.id == bindparam("named")))
_ANSWER = prepared(
    update(grant_requests)
    .where(grant_requests.c.id == bindparam("named"), grant_requests.c.state == "pending")
    .values(state=bindparam("then"), answered_by=bindparam("by"), answered_at=bindparam("at"))
)
_REMOVE = prepared(delete(grants).where(grants.c.id == bindparam("named")))
_WITHDRAW = prepared(delete(grant_requests).where(grant_requests.c.id == bindparam("named")))
_RENAMED = prepared(
    delete(grants).where(
        grants.c.granter == bindparam("whose"),
        grants.c.called == bindparam("name"),
        grants.c.grantee != bindparam("other"),
    )
)
_OWNED = prepared(
    select(_agents.c.uid)
    .select_from(_agents.outerjoin(_sessions, _sessions.c.uid == _agents.c.uid))
    .where(
        _agents.c.retired_at.is_(None),
        or_(_agents.c.owner == bindparam("person"), _sessions.c.owner == bindparam("person")),
    )
)
_GONE = prepared(
    select(_agents.c.uid).where(
        among(_agents.c.uid, "uids"),
        or_(_agents.c.retired_at.is_not(None), _agents.c.org.contains(SET_ASIDE)),
    )
)
_HERE = agents.c.retired_at.is_(None)
_OWNERS = prepared(
    select(agents.c.uid, agents.c.owner, sessions.c.owner)
    .select_from(agents.outerjoin(sessions, sessions.c.uid == agents.c.uid))
    .where(_HERE)
)
_OF_ORG = prepared(select(agents.c.uid, agents.c.grants_only).where(_HERE))
_SET = prepared(update(agents).where(agents.c.uid == bindparam("who")))
_ONLY = prepared(select(agents.c.grants_only).where(agents.c.uid == bindparam("uid")))
_OWNER = prepared(select(agents.c.owner).where(agents.c.uid == bindparam("uid")))
_NOT_OVER = update(grants).where(grants.c.revoked_at.is_(None))
_END_MADE = prepared(
    _NOT_OVER.where(grants.c.granter == bindparam("whose"), grants.c.made_by == bindparam("by"))
)
_END_MADE_BY = prepared(_NOT_OVER.where(grants.c.made_by == bindparam("by")))
_END_TO = prepared(_NOT_OVER.where(grants.c.grantee == bindparam("whose")))
_FORGET = prepared(delete(grants).where(grants.c.granter == bindparam("whose")))
_FORGET_ASKED = prepared(
    delete(grant_requests).where(grant_requests.c.granter == bindparam("whose"))
)
_DISOWN = prepared(
    update(agents).where(agents.c.owner == bindparam("whose")).values(owner=bindparam("new"))
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
        if agent is None or agent.retired or SET_ASIDE in agent.org:
            return None
        owner, own, joined, person, of_org = values[len(_AGENT) :]
        return Reached(agent, person or owner, bool(own or of_org), joined)

    def between(self, granters: Collection[str], grantees: Collection[str]) -> list[GrantRow]:
        """The grants of any of `granters` to any of `grantees`, ended ones too."""
        return self._session.all(
            GrantRow, _BETWEEN, granters=list(granters), grantees=list(grantees)
        )

    def to(self, grantees: Collection[str]) -> list[GrantRow]:
        """The grants to any of `grantees` in all organisations, ended ones too."""
        return self._session.all(GrantRow, _TO, grantees=list(grantees))

    def hosts(self, grantees: Collection[str]) -> set[str]:
        """The organisations with agents that have let in one of `grantees`, or that belong to one, ended ones too."""
        return set(self._session.column(_HOSTS, grantees=list(grantees)))

    def ties(
        self, sides: Collection[str]
    ) -> list[tuple[str, str, str, float | None, float | None]]:
        """The agents of all organisations that a grant of or to `sides` ties to them, also an ended one.

        Each with that grant's granter, scopes, end and revocation; an owner's grant is one of each of their agents.
        """
        return self._session.rows(_TIES, sides=list(sides))

    def admission(self, org: str) -> Admission:
        """How agents come into `org`, and whether it is reached by grants alone."""
        return self._session.first(Admission, _ADMISSION, of=org) or Admission()

    # ── of this organisation ────────────────────────────────────────────────────────────────────────────

    def put(self, row: GrantRow) -> None:
        """Store a grant, in place of the one of the same pair, or to what was called the same."""
        if row.called:
            same = {"whose": row.granter, "name": row.called, "other": row.grantee}
            self._session.run(_RENAMED, same)
        self._session.run(_PUT, values_of(row))

    def grant(self, grant: str) -> GrantRow | None:
        """The grant with that id."""
        return self._session.first(GrantRow, _BY_ID, named=grant)

    def of(self, granters: Collection[str] | None = None) -> list[GrantRow]:
        """The grants of those agents, or of all, ended ones too."""
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
        """The requests to those agents, or to all."""
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

    def remove(self, grant: str) -> None:
        """Forget a grant."""
        self._session.run(_REMOVE, {"named": grant})

    def withdraw(self, request: str) -> None:
        """Forget a request."""
        self._session.run(_WITHDRAW, {"named": request})

    # ── agents ──────────────────────────────────────────────────────────────────────────────────────────

    def owned(self, person: str) -> list[str]:
        """The uids of the agents and sessions that belong to a person."""
        return self._session.column(_OWNED, person=person)

    def gone(self, uids: Collection[str]) -> set[str]:
        """Those of `uids`, of any organisation, whose address was taken away."""
        return set(self._session.column(_GONE, uids=list(uids)))

    def owners(self) -> dict[str, str]:
        """To whom the agents of this organisation belong that belong to somebody, by uid."""
        found = self._session.rows(_OWNERS)
        return {uid: person or owner for uid, owner, person in found if person or owner}

    def closed(self, *, everybody: bool) -> list[str]:
        """The uids of the agents of this organisation that are reached by grants alone; with `everybody` of all."""
        return [uid for uid, only in self._session.rows(_OF_ORG) if only or everybody]

    def reached_by_grants_alone(self, uid: str, only: bool | None = None) -> bool:
        """Whether an agent itself says that it is reached by grants alone; `only` changes that."""
        if only is not None:
            self._session.run(_SET, {"who": uid, "grants_only": only})
        return bool(self._session.scalar(_ONLY, uid=uid))

    def give_to(self, uid: str, owner: str, at: float) -> str:
        """Let an agent belong to another person, "" for nobody; what the one before has let in for it ends.

        Returns:
            Uid of the one before.
        """
        before = self._session.scalar(_OWNER, uid=uid)
        self._session.run(_SET, {"who": uid, "owner": owner})
        if before and before != owner:
            self._session.run(_END_MADE, {"whose": uid, "by": before, "revoked_at": at})
        return before or ""

    def retired(self, uid: str, at: float) -> None:
        """End what stands on an agent of this organisation whose address is taken away.

        What it has let in, and what a person has let in for agents of theirs, is no more; what lets it in is over.
        """
        for statement in (_FORGET, _FORGET_ASKED):
            self._session.run(statement, {"whose": uid})
        self._session.run(_END_TO, {"whose": uid, "revoked_at": at})
        self._session.run(_END_MADE_BY, {"by": uid, "revoked_at": at})
        self._session.run(_DISOWN, {"whose": uid, "new": ""})
