"""Agents and their memberships, and the cards of those that Postroom does not run, as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from sqlalchemy import bindparam, delete, exists, insert, or_, select, update

from postroom.protocol import shapes
from postroom.protocol.ids import CONTROL_PLANE
from postroom.store.schema import (
    EVERYWHERE,
    SET_ASIDE,
    agent_cards,
    agents,
    memberships,
    messages,
    sessions,
)
from postroom.store.session import Session, among, prepared, upsert

_ALL = prepared(select(agent_cards.c.uid, agent_cards.c.card))
_SET = upsert(agent_cards, ["uid"], ["card", "updated_at"])
_REMOTES = prepared(
    select(agent_cards.c.uid, agent_cards.c.remote).where(agent_cards.c.remote != "")
)
_SET_REMOTE = prepared(update(agent_cards).where(agent_cards.c.uid == bindparam("who")))
_REMOVE = prepared(delete(agent_cards).where(agent_cards.c.uid == bindparam("who")))


@dataclass(frozen=True, slots=True)
class Party:
    """The sender, recipient, requester or worker; `kind` is `unknown` where the directory has no such agent."""

    uid: str
    nick: str
    kind: str

    def as_json(self) -> shapes.Party:
        """Shape of the API."""
        return {"uid": self.uid, "nick": self.nick, "kind": self.kind}


@dataclass(frozen=True, slots=True)
class Agent:
    """Anything with an address.

    Attributes:
        kind: `human`, `worker`, `external` or `service`.
        retired_at: seconds since the epoch, None while it is addressable.
        seen_at: its last call of the API that is noted, None for none (`directory.presence`).
    """

    uid: str
    org: str
    nick: str
    kind: str
    created_at: float
    retired_at: float | None = None
    seen_at: float | None = field(default=None, compare=False)

    @property
    def retired(self) -> bool:
        """Whether the agent can no longer receive anything."""
        return self.retired_at is not None

    @property
    def party(self) -> Party:
        """The agent as messages and tasks of its organisation show it."""
        return Party(self.uid, self.nick, self.kind)

    def party_in(self, org: str) -> Party:
        """The agent as an organisation shows it: one of another by its address, `nick.org`."""
        own = self.org.partition(SET_ASIDE)[0]
        return self.party if own == org else replace(self.party, nick=f"{self.nick}.{own}")


_COLUMNS = [agents.c[each.name] for each in fields(Agent)]
_NEW_MEMBERSHIP = prepared(insert(memberships))
_NAMED = select(*_COLUMNS).where(agents.c.org == bindparam("org"), agents.c.retired_at.is_(None))
_BY_UID = prepared(select(*_COLUMNS).where(agents.c.uid == bindparam("uid")))
_BY_NICK = prepared(_NAMED.where(agents.c.nick == bindparam("nick")))
_BY_SKELETON = prepared(_NAMED.where(agents.c.skeleton == bindparam("skeleton")))
_AMONG = prepared(select(*_COLUMNS).where(among(agents.c.uid, "uids")))
_ANYWHERE = prepared(
    select(*(EVERYWHERE.agents.c[each.name] for each in fields(Agent))).where(
        EVERYWHERE.agents.c.uid == bindparam("uid")
    )
)
_SECRET = prepared(select(agents.c.message_secret).where(agents.c.uid == bindparam("uid")))
_SECRET_ANYWHERE = prepared(
    select(EVERYWHERE.agents.c.message_secret).where(EVERYWHERE.agents.c.uid == bindparam("uid"))
)
_OUTSIDE = prepared(
    select(agents.c.uid).where(
        agents.c.kind.in_(("external", "service")), agents.c.retired_at.is_(None)
    )
)
_SEEN = prepared(update(agents).where(agents.c.uid == bindparam("who")))

_own = select(agents.c.uid)
_agents, _sessions = EVERYWHERE.agents, EVERYWHERE.sessions
_either = (_agents.c.uid, _agents.c.owner, _sessions.c.owner)
_theirs = select(EVERYWHERE.grants.c.id).where(
    EVERYWHERE.grants.c.granter.in_(_either), EVERYWHERE.grants.c.grantee.in_(_own)
)
_ours = select(EVERYWHERE.grants.c.id).where(
    EVERYWHERE.grants.c.grantee.in_(_either), EVERYWHERE.grants.c.granter.in_(_own)
)
_asked = select(EVERYWHERE.grant_requests.c.id).where(
    EVERYWHERE.grant_requests.c.grantee == _agents.c.uid,
    EVERYWHERE.grant_requests.c.granter.in_(_own),
)
_OTHERS = (
    select(_agents.c.uid, _agents.c.nick, _agents.c.org, _agents.c.kind)
    .select_from(_agents.outerjoin(_sessions, _sessions.c.uid == _agents.c.uid))
    .where(among(_agents.c.uid, "uids"))
)
_RELATED = prepared(_OTHERS.where(or_(_theirs.exists(), _ours.exists(), _asked.exists())))
_SHOWN_HERE = prepared(
    _OTHERS.where(
        or_(
            _theirs.exists(),
            _asked.exists(),
            # Not whom we let in: who does that learns by it nothing of an address or a uid.
            exists().where(messages.c.sender == _agents.c.uid),
        )
    )
)


class AgentStore:
    """Agents and the projects that they belong to."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_agent(self, agent: Agent, skeleton: str, message_secret: bytes) -> None:
        """Store a new agent; nick and skeleton must be free (unique indexes hold that)."""
        self._session.run(
            insert(agents).values(
                uid=agent.uid,
                org=agent.org,
                nick=agent.nick,
                kind=agent.kind,
                created_at=agent.created_at,
                skeleton=skeleton,
                message_secret=message_secret,
            )
        )

    def agent_by_uid(self, uid: str) -> Agent | None:
        """The agent with that uid, retired or not."""
        return self._session.first(Agent, _BY_UID, uid=uid)

    def anywhere(self, uid: str) -> Agent | None:
        """The agent with that uid of any organisation, retired or not, a removed one's too."""
        return self._session.first(Agent, _ANYWHERE, uid=uid)

    def agent_by_nick(self, org: str, nick: str) -> Agent | None:
        """The agent of that name; retired ones do not count."""
        return self._session.first(Agent, _BY_NICK, org=org, nick=nick)

    def agent_by_skeleton(self, org: str, skeleton: str) -> Agent | None:
        """The agent whose name looks like that; retired ones do not count."""
        return self._session.first(Agent, _BY_SKELETON, org=org, skeleton=skeleton)

    def agents_by_uid(self, uids: Iterable[str]) -> dict[str, Agent]:
        """The agents among `uids`, retired or not."""
        return {agent.uid: agent for agent in self._session.all(Agent, _AMONG, uids=set(uids))}

    def parties(self, uids: Iterable[str]) -> dict[str, Party]:
        """The party of each of `uids`; none is left out."""
        wanted = set(uids)
        known = self.agents_by_uid(wanted)
        found = {uid: agent.party for uid, agent in known.items()}
        if others := wanted - set(found) - {CONTROL_PLANE}:
            found |= self.related(others)
        unknown = {uid: Party(uid, "", "unknown") for uid in wanted - set(found)}
        if CONTROL_PLANE in unknown:
            unknown[CONTROL_PLANE] = Party(CONTROL_PLANE, CONTROL_PLANE, "service")
        return found | unknown

    def related(self, uids: Collection[str]) -> dict[str, Party]:
        """Those of `uids` that are of other organisations and that a grant or what they ask for ties to this one.

        The nick of each is its address, `nick.org`. Of all others nothing is known here.
        """
        found = self._session.rows(_RELATED, uids=list(uids))
        return {
            uid: Party(uid, f"{nick}.{org.partition(SET_ASIDE)[0]}", kind)
            for uid, nick, org, kind in found
        }

    def shown_here(self, uid: str) -> bool:
        """Whether an agent of another organisation has shown itself to this one: it has let somebody in, or written."""
        return bool(self._session.rows(_SHOWN_HERE, uids=[uid]))

    def all_agents(self, org: str, *, retired: bool = False) -> list[Agent]:
        """The agents of an organisation, by nick; with `retired` the retired ones too."""
        found = (
            select(*_COLUMNS)
            .where(agents.c.org == org)
            .order_by(agents.c.nick, agents.c.created_at)
        )
        if not retired:
            found = found.where(agents.c.retired_at.is_(None))
        return self._session.all(Agent, found)

    def outside(self) -> list[str]:
        """The uids of the agents that Postroom does not run, people aside."""
        return self._session.column(_OUTSIDE)

    def rename_agent(self, uid: str, nick: str, skeleton: str) -> bool:
        """Give an agent another nick, which must be free; False if it is retired, or does not exist."""
        renamed = (
            update(agents)
            .where(agents.c.uid == uid, agents.c.retired_at.is_(None))
            .values(nick=nick, skeleton=skeleton)
        )
        return self._session.run(renamed) == 1

    def retire_agent(self, uid: str, at: float) -> bool:
        """Mark an agent as retired; False if it was already, or does not exist. A session has ended with that."""
        self._session.run(delete(sessions).where(sessions.c.uid == uid))
        retired = (
            update(agents)
            .where(agents.c.uid == uid, agents.c.retired_at.is_(None))
            .values(retired_at=at, owner_email="")
        )
        return self._session.run(retired) == 1

    def seen(self, calls: Mapping[str, float]) -> None:
        """Note when agents (by uid) have called last."""
        for uid, at in calls.items():
            self._session.run(_SEEN, {"who": uid, "seen_at": at})

    def message_secret(self, uid: str, *, anywhere: bool = False) -> bytes | None:
        """Key of the HMAC that makes this sender's message ids; with `anywhere` of any organisation's."""
        return self._session.scalar(_SECRET_ANYWHERE if anywhere else _SECRET, uid=uid)

    def set_memberships(self, uid: str, projects: Iterable[str]) -> None:
        """Replace the projects that `uid` belongs to."""
        self._session.run(delete(memberships).where(memberships.c.uid == uid))
        for project in sorted(set(projects)):
            self._session.run(_NEW_MEMBERSHIP, {"uid": uid, "project": project})

    def projects_of(self, uid: str) -> tuple[str, ...]:
        """The projects that `uid` belongs to, sorted."""
        found = (
            select(memberships.c.project)
            .where(memberships.c.uid == uid)
            .order_by(memberships.c.project)
        )
        return tuple(self._session.column(found))

    def members_of(self, project: str) -> tuple[str, ...]:
        """The uids that belong to `project`, sorted."""
        found = (
            select(memberships.c.uid)
            .where(memberships.c.project == project)
            .order_by(memberships.c.uid)
        )
        return tuple(self._session.column(found))


class CardStore:
    """Cards by the uid of their agent."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all_cards(self) -> dict[str, str]:
        """Every card, as JSON text."""
        return dict(self._session.rows(_ALL))

    def set_card(self, uid: str, card: str, at: float) -> None:
        """Store the card of an agent in place of the one that it had."""
        self._session.run(_SET, {"uid": uid, "card": card, "updated_at": at})

    def remove_card(self, uid: str) -> None:
        """Forget the card of an agent."""
        self._session.run(_REMOVE, {"who": uid})

    def remotes(self) -> dict[str, str]:
        """Where and how agents of other people are called, as JSON text."""
        return dict(self._session.rows(_REMOTES))

    def set_remote(self, uid: str, remote: str) -> None:
        """Store it, for an agent that has a card."""
        self._session.run(_SET_REMOTE, {"who": uid, "remote": remote})
