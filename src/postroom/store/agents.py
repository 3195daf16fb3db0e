"""Agents, their API keys and their memberships, as rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from postroom.store.rows import all_of, first_of
from postroom.store.schema import agents, api_keys, memberships


@dataclass(frozen=True, slots=True)
class Agent:
    """Anything with an address.

    Attributes:
        kind: `human`, `worker`, `external` or `service`.
        retired_at: seconds since the epoch, None while it is addressable.
    """

    uid: str
    org: str
    nick: str
    kind: str
    created_at: float
    retired_at: float | None = None

    @property
    def retired(self) -> bool:
        """Whether the agent can no longer receive anything."""
        return self.retired_at is not None


_COLUMNS = [agents.c[field.name] for field in fields(Agent)]
_AMONG = select(*_COLUMNS).where(agents.c.uid.in_(bindparam("uids", expanding=True)))


def add_agent(connection: Connection, agent: Agent, skeleton: str, message_secret: bytes) -> None:
    """Store a new agent; nick and skeleton must be free (unique indexes hold that)."""
    connection.execute(
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


def agent_by_uid(connection: Connection, uid: str) -> Agent | None:
    """The agent with that uid, retired or not."""
    return first_of(connection, Agent, select(*_COLUMNS).where(agents.c.uid == uid))


def agent_by_nick(connection: Connection, org: str, nick: str) -> Agent | None:
    """The agent of that name; retired ones do not count."""
    found = select(*_COLUMNS).where(
        agents.c.org == org, agents.c.nick == nick, agents.c.retired_at.is_(None)
    )
    return first_of(connection, Agent, found)


def agent_by_skeleton(connection: Connection, org: str, skeleton: str) -> Agent | None:
    """The agent whose name looks like that; retired ones do not count."""
    found = select(*_COLUMNS).where(
        agents.c.org == org, agents.c.skeleton == skeleton, agents.c.retired_at.is_(None)
    )
    return first_of(connection, Agent, found)


def agents_by_uid(connection: Connection, uids: Iterable[str]) -> dict[str, Agent]:
    """The agents among `uids`, retired or not."""
    return {agent.uid: agent for agent in all_of(connection, Agent, _AMONG, uids=list(set(uids)))}


def all_agents(connection: Connection, org: str, *, retired: bool = False) -> list[Agent]:
    """The agents of an organisation, by nick; with `retired` the retired ones too."""
    found = (
        select(*_COLUMNS).where(agents.c.org == org).order_by(agents.c.nick, agents.c.created_at)
    )
    if not retired:
        found = found.where(agents.c.retired_at.is_(None))
    return all_of(connection, Agent, found)


def retire_agent(connection: Connection, uid: str, at: float) -> bool:
    """Mark an agent as retired; False if it was already, or does not exist."""
    retired = (
        update(agents)
        .where(agents.c.uid == uid, agents.c.retired_at.is_(None))
        .values(retired_at=at)
    )
    return connection.execute(retired).rowcount == 1


def message_secret(connection: Connection, uid: str) -> bytes | None:
    """Key of the HMAC that makes this sender's message ids."""
    return connection.execute(select(agents.c.message_secret).where(agents.c.uid == uid)).scalar()


def set_memberships(connection: Connection, uid: str, projects: Iterable[str]) -> None:
    """Replace the projects that `uid` belongs to."""
    connection.execute(delete(memberships).where(memberships.c.uid == uid))
    rows = [{"uid": uid, "project": project} for project in sorted(set(projects))]
    if rows:
        connection.execute(insert(memberships), rows)


def projects_of(connection: Connection, uid: str) -> tuple[str, ...]:
    """The projects that `uid` belongs to, sorted."""
    found = (
        select(memberships.c.project)
        .where(memberships.c.uid == uid)
        .order_by(memberships.c.project)
    )
    return tuple(connection.execute(found).scalars())


def members_of(connection: Connection, project: str) -> tuple[str, ...]:
    """The uids that belong to `project`, sorted."""
    found = (
        select(memberships.c.uid)
        .where(memberships.c.project == project)
        .order_by(memberships.c.uid)
    )
    return tuple(connection.execute(found).scalars())


def add_api_key(connection: Connection, key_id: str, uid: str, sha256: str, at: float) -> None:
    """Store the hash of a new key; the key itself is shown once and kept nowhere."""
    connection.execute(insert(api_keys).values(id=key_id, uid=uid, sha256=sha256, created_at=at))


def api_key_owner(connection: Connection, sha256: str) -> str:
    """Uid of the agent whose valid key has that hash; "" if there is no such key, or the agent is retired."""
    found = (
        select(api_keys.c.uid)
        .join(agents, agents.c.uid == api_keys.c.uid)
        .where(
            api_keys.c.sha256 == sha256,
            api_keys.c.revoked_at.is_(None),
            agents.c.retired_at.is_(None),
        )
    )
    return connection.execute(found).scalar() or ""


def revoke_api_key(connection: Connection, key_id: str, at: float) -> bool:
    """Revoke a key at once; False if it was already, or does not exist."""
    revoked = (
        update(api_keys)
        .where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=at)
    )
    return connection.execute(revoked).rowcount == 1
