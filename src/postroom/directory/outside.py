"""Agents that Postroom does not run: external ones and services, each with an address, an inbox and a card."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from postroom import __version__
from postroom.directory.agents import Directory
from postroom.directory.cards import Card, outside_card, read_given
from postroom.directory.presence import Callers
from postroom.errors import InvalidInput
from postroom.store.agents import Agent
from postroom.store.database import Database, Store

KINDS = ("external", "service")

_PUBLIC = "public"
"""Member beside what a card says, in the state: it is no field of a card."""


class OutsideAgents:
    """Adds and removes them, and keeps their cards.

    Args:
        changed: called when a card has changed.
    """

    def __init__(
        self,
        database: Database,
        directory: Directory,
        callers: Callers,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._directory = directory
        self._callers = callers
        self._changed = changed
        self._clock = clock
        self._cards: dict[str, Card] = {}
        self._public: set[str] = set()

    async def open(self) -> None:
        """Read the cards."""
        given = await self._database.read(lambda store: store.cards.all_cards())
        for agent in await self._directory.all():
            if agent.kind in KINDS:
                said = json.loads(given.get(agent.uid, "{}"))
                self._cards[agent.uid] = _card(agent, said)
                if said.get(_PUBLIC):
                    self._public.add(agent.uid)

    async def add(
        self,
        nick: str,
        kind: str,
        card: Mapping[str, Any] | None = None,
        *,
        public: bool = False,
        uid: str = "",
        first: Callable[[Store], None] | None = None,
        also: Callable[[Store, Agent], None] = lambda _store, _agent: None,
    ) -> Agent:
        """Give an agent its address.

        Args:
            card: what its Agent Card says of it (`cards.read_given`).
            public: its card over HTTP is for everybody, also without a key.
            uid, first, also: as in `Directory.register`.

        Raises:
            InvalidInput, MessageTooLarge: the kind or the card is not valid.
            InvalidName, NameTaken: as `Directory.register`.
        """
        if kind not in KINDS:
            raise InvalidInput(f"an agent that is added is one of {', '.join(KINDS)}")
        given = read_given(card or {}, "", nick)

        def store(store: Store, agent: Agent) -> None:
            stored = json.dumps(given | ({_PUBLIC: True} if public else {}))
            store.cards.set_card(agent.uid, stored, agent.created_at)
            also(store, agent)

        agent = await self._directory.register(nick, kind, uid=uid, first=first, also=store)
        self._cards[agent.uid] = _card(agent, given)
        if public:
            self._public.add(agent.uid)
        self._changed()
        return agent

    async def resolve(self, ref: str) -> Agent:
        """The agent with that nick or uid, which Postroom does not run.

        Raises:
            UnknownRecipient: no agent has that name.
            InvalidInput: it is a worker or a person.
        """
        agent = await self._directory.resolve(ref)
        if agent.kind not in KINDS:
            how = {"worker": f"postroom remove {agent.nick}"}.get(agent.kind, "")
            raise InvalidInput(f"@{agent.nick} is a {agent.kind}, and was not added", remedy=how)
        return agent

    async def set_card(self, ref: str, card: Mapping[str, Any]) -> Agent:
        """Give an agent another card.

        Raises:
            InvalidInput, MessageTooLarge: the card is not valid.
        """
        agent = await self.resolve(ref)
        given, now = read_given(card, agent.uid, agent.nick), self._clock()
        stored = json.dumps(given | ({_PUBLIC: True} if self.is_public(agent.uid) else {}))
        await self._database.write(lambda store: store.cards.set_card(agent.uid, stored, now))
        self._cards[agent.uid] = _card(agent, given)
        self._changed()
        return agent

    async def rename(self, agent: Agent, nick: str) -> Agent:
        """Give an agent another nick. Raises as `Directory.rename`."""
        renamed = await self._directory.rename(agent, nick)
        await self.renamed(renamed)
        return renamed

    async def renamed(self, agent: Agent) -> None:
        """Show the card of an agent under the nick that it has got."""
        given = await self._database.read(lambda store: store.cards.all_cards())
        self._cards[agent.uid] = _card(agent, json.loads(given.get(agent.uid, "{}")))
        self._changed()

    async def forget(self, uid: str) -> None:
        """Drop the card of an agent that is retired."""
        await self._database.write(lambda store: store.cards.remove_card(uid))
        self._callers.forget(uid)
        self._cards.pop(uid, None)
        self._public.discard(uid)
        self._changed()

    def cards(self, uid: str = "") -> dict[str, Card]:
        """The cards by uid, of one agent or of all."""
        if not uid:
            return dict(self._cards)
        return {uid: self._cards[uid]} if uid in self._cards else {}

    def is_public(self, uid: str) -> bool:
        """Whether the card of that agent is for everybody."""
        return uid in self._public

    def live_cards(self) -> dict[str, Card | None]:
        """The card of each agent, None while it is not there."""
        there = self._callers.there
        return {uid: card if there(uid) else None for uid, card in self._cards.items()}


def _card(agent: Agent, given: Mapping[str, Any]) -> Card:
    return outside_card(agent.uid, agent.nick, agent.kind, given, version=__version__)
