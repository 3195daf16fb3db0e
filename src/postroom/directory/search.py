"""The directory for those who look for agents: who is this, where, is it there, and what can it do.

It knows agents of every kind: workers by their status messages, people and agents that Postroom does not run by their
calls.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from postroom.directory.agents import Directory
from postroom.directory.cards import Card, matches, skills_of
from postroom.directory.grants import GrantScope
from postroom.directory.sessions import sees
from postroom.errors import NotFound
from postroom.protocol import shapes
from postroom.protocol.limits import MAX_CARDS_BYTES
from postroom.protocol.principal import Principal
from postroom.store.agents import Agent
from postroom.store.sessions import SessionRow
from postroom_a2a.times import format_time

CARD = GrantScope.CARD.value


class Presences(Protocol):
    """Which agents are there."""

    def there(self, uid: str) -> bool:
        """Whether that agent takes what is sent to it now."""

    def seen_at(self, uid: str) -> float | None:
        """Its last sign of life, seconds since the epoch; None for none."""


class AgentSearch:
    """Finds agents by nick, skill, text or kind.

    Args:
        cards: returns cards by uid: of the agent with the uid, or for "" of all that have one.
        workers, callers: the presence of workers, and that of all others.
        session: returns the session that the agent with the uid is.
    """

    def __init__(
        self,
        directory: Directory,
        cards: Callable[[str], Awaitable[Mapping[str, Card]]],
        workers: Presences,
        callers: Presences,
        sign: Callable[[Card], Card],
        session: Callable[[str], SessionRow | None] = lambda _: None,
    ) -> None:
        self._directory = directory
        self._cards = cards
        self._workers = workers
        self._callers = callers
        self._sign = sign
        self._session = session

    async def find(
        self, skill: str = "", text: str = "", kind: str = "", me: Principal | None = None
    ) -> list[shapes.Listed]:
        """Entries by nick; with `skill` or `text` only agents whose card has them (`cards.matches`), with `kind` only
        agents of that kind.

        An entry is `{"uid", "nick", "kind", "org", "online", "seen_at", "card", "session"}`. People have no card (null)
        and most agents no session; its folder is for `me` alone, if `me` may see it. A stranger sees whom a grant ties
        to it, and card and presence of who has let it in for that.
        """
        cards = await self._cards("")
        seen = await self._directory.seen_by(me)
        found = []
        for agent in await self._directory.all():
            if seen is not None and agent.uid not in seen:
                continue
            shown = seen is None or CARD in seen[agent.uid]
            card = cards.get(agent.uid) if shown else None
            if (kind and agent.kind != kind) or (card is None and (skill or text)):
                continue
            if card is None or matches(card, skill=skill, text=text):
                found.append(self._entry(agent, card, me, shown=shown))
        return found

    async def having(self, skill: str) -> list[tuple[Agent, bool]]:
        """The agents whose card has a skill with exactly that id, each with whether it is online, by nick."""
        cards = await self._cards("")
        found = []
        for agent in await self._directory.all():
            card = cards.get(agent.uid)
            if card is not None and skill in skills_of(card):
                found.append((agent, self._presence(agent).there(agent.uid)))
        return found

    async def entry(self, ref: str, me: Principal | None = None) -> shapes.Listed:
        """The entry of the agent with that nick, address or uid; `me` as in `find`.

        Of one of another organisation that this one has met it has the name alone.
        """
        agent = await self._directory.known(ref)
        seen = await self._directory.seen_by(me)
        shown = seen is None or CARD in seen.get(agent.uid, ())
        card = (await self._cards(agent.uid)).get(agent.uid) if shown else None
        return self._entry(agent, card, me, shown=shown)

    async def get(self, ref: str, me: Principal | None = None) -> shapes.Listed:
        """The same; NotFound if it has no card."""
        entry = await self.entry(ref, me)
        if entry["card"] is None:
            raise NotFound(f"@{entry['nick']} has no card")
        return entry

    async def card(self, agent: Agent) -> Card | None:
        """The card of an agent, without a signature; None if it has none."""
        return (await self._cards(agent.uid)).get(agent.uid)

    def _presence(self, agent: Agent) -> Presences:
        return self._workers if agent.kind == "worker" else self._callers

    def _entry(
        self, agent: Agent, card: Card | None, me: Principal | None, *, shown: bool = True
    ) -> shapes.Listed:
        """`shown` is whether `me` may have its card, and know whether it is there."""
        presence = self._presence(agent)
        party = agent.party_in(self._directory.org)
        seen = presence.seen_at(agent.uid) if shown else None
        return {
            **party.as_json(),
            "org": agent.org,
            "online": shown and presence.there(agent.uid),
            "seen_at": None if seen is None else format_time(seen),
            "card": None if card is None else self._sign(card),
            "session": self._state(agent.uid, me) if shown else None,
        }

    def _state(self, uid: str, me: Principal | None) -> shapes.SessionState | None:
        session = self._session(uid)
        if session is None:
            return None
        return {
            "client": session.client,
            "folder": session.folder if me is not None and sees(me, session) else "",
            "state": session.state,
            "state_at": format_time(session.state_at),
            "heard_at": format_time(session.heard_at),
        }


def bounded(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As many entries as fit into a message; `truncated` says whether some are left out."""
    size, fitting = 0, []
    for entry in entries:
        size += len(json.dumps(entry, ensure_ascii=False).encode())
        if size > MAX_CARDS_BYTES:
            break
        fitting.append(entry)
    return {"agents": fitting, "truncated": len(fitting) < len(entries)}
