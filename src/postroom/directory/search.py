"""Search for agents: every agent with an address, with its card if it has one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from postroom.directory.agents import Directory
from postroom.directory.cards import Card, matches, skills_of
from postroom.errors import NotFound
from postroom.protocol import shapes
from postroom.protocol.limits import MAX_CARDS_BYTES
from postroom.store.agents import Agent


class AgentSearch:
    """Finds agents by nick, skill or text.

    Args:
        cards: returns cards by uid: of the agent with the uid, or for "" of all that have one.
        online: whether the agent with that uid is online.
    """

    def __init__(
        self,
        directory: Directory,
        cards: Callable[[str], Awaitable[Mapping[str, Card]]],
        online: Callable[[str], bool],
        sign: Callable[[Card], Card],
    ) -> None:
        self._directory = directory
        self._cards = cards
        self._online = online
        self._sign = sign

    async def find(self, skill: str = "", text: str = "") -> list[shapes.Listed]:
        """Entries by nick; with `skill` or `text` only agents whose card has them (`cards.matches`).

        An entry is `{"uid", "nick", "kind", "org", "online", "card"}`. People have no card and no known state (null).
        """
        cards = await self._cards("")
        found = []
        for agent in await self._directory.all():
            card = cards.get(agent.uid)
            if card is None and (skill or text):
                continue
            if card is None or matches(card, skill=skill, text=text):
                found.append(self._entry(agent, card))
        return found

    async def having(self, skill: str) -> list[tuple[Agent, bool]]:
        """The agents whose card has a skill with exactly that id, each with whether it is online, by nick."""
        cards = await self._cards("")
        found = []
        for agent in await self._directory.all():
            card = cards.get(agent.uid)
            if card is not None and skill in skills_of(card):
                found.append((agent, self._online(agent.uid)))
        return found

    async def get(self, ref: str) -> shapes.Listed:
        """The entry of the agent with that nick or uid; NotFound if it has no card."""
        agent = await self._directory.resolve(ref)
        card = (await self._cards(agent.uid)).get(agent.uid)
        if card is None:
            raise NotFound(f"@{agent.nick} has no card")
        return self._entry(agent, card)

    def _entry(self, agent: Agent, card: Card | None) -> shapes.Listed:
        return {
            "uid": agent.uid,
            "nick": agent.nick,
            "kind": agent.kind,
            "org": agent.org,
            "online": None if card is None else self._online(agent.uid),
            "card": None if card is None else self._sign(card),
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
