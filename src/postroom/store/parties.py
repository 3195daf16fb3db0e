"""Names of the agents in messages and tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from postroom.protocol import shapes
from postroom.protocol.ids import CONTROL_PLANE
from postroom.store import agents
from postroom.store.agents import Agent


@dataclass(frozen=True, slots=True)
class Party:
    """The sender, recipient, requester or worker; `kind` is `unknown` where the directory has no such agent."""

    uid: str
    nick: str
    kind: str

    def as_json(self) -> shapes.Party:
        """Shape of the API."""
        return {"uid": self.uid, "nick": self.nick, "kind": self.kind}


def party(agent: Agent) -> Party:
    """An agent as a party."""
    return Party(agent.uid, agent.nick, agent.kind)


def parties(connection: Connection, uids: Iterable[str]) -> dict[str, Party]:
    """The party of each of `uids`; none is left out."""
    wanted = set(uids)
    known = agents.agents_by_uid(connection, wanted)
    found = {uid: party(agent) for uid, agent in known.items()}
    unknown = {uid: Party(uid, "", "unknown") for uid in wanted - set(found)}
    if CONTROL_PLANE in unknown:
        unknown[CONTROL_PLANE] = Party(CONTROL_PLANE, CONTROL_PLANE, "service")
    return found | unknown
