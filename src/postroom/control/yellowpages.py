"""Finding agents by what they can do: everybody with an address, with the cards of those who have one."""

from __future__ import annotations

import json
from typing import Any

from postroom.control.launch import card_of
from postroom.control.registry import Registry
from postroom.control.workers import Workers
from postroom.directory.cards import Card, matches, skills_of
from postroom.errors import InvalidTemplate, NotFound
from postroom.mail.directory import Directory
from postroom.protocol.template import parse_template
from postroom.store.agents import Agent
from postroom.store.workers import WorkerRecord

MAX_ANSWER = 512 * 1024
"""Bytes of cards in one answer on the bus, whose messages have 1 MiB at most."""


class YellowPages:
    """Looks agents up.

    Args:
        directory: everybody.
        workers: who has a card.
        registry: signs, and knows who is online.
    """

    def __init__(self, directory: Directory, workers: Workers, registry: Registry) -> None:
        self._directory = directory
        self._workers = workers
        self._registry = registry

    async def find(self, skill: str = "", text: str = "") -> list[dict[str, Any]]:
        """Entries by nick; with `skill` or `text` only of agents whose card has them (`cards.matches`).

        An entry is `{"uid", "nick", "kind", "org", "online", "card"}`; people have no card (null), and whether they
        are there is not known (null).
        """
        records = {agent.uid: record for agent, record in await self._workers.records()}
        found = []
        for agent in await self._directory.all():
            card = self._card(agent, records.get(agent.uid))
            if card is None and (skill or text):
                continue
            if card is None or matches(card, skill=skill, text=text):
                found.append(self._entry(agent, card))
        return found

    async def having(self, skill: str) -> list[tuple[Agent, bool]]:
        """The agents whose card has the skill with that very id, each with whether it is online, by nick."""
        records = {agent.uid: record for agent, record in await self._workers.records()}
        found = []
        for agent in await self._directory.all():
            card = self._card(agent, records.get(agent.uid))
            if card is not None and skill in skills_of(card):
                found.append((agent, self._registry.online(agent.uid)))
        return found

    async def get(self, ref: str) -> dict[str, Any]:
        """The entry of the agent with that nick or uid.

        Raises:
            NotFound: there is no such agent, or it has no card.
        """
        agent = await self._directory.resolve(ref)
        try:
            _, record = await self._workers.record(agent.uid)
        except NotFound:
            record = None
        card = self._card(agent, record)
        if card is None:
            raise NotFound(f"@{agent.nick} has no card")
        return self._entry(agent, card)

    def _card(self, agent: Agent, record: WorkerRecord | None) -> Card | None:
        run = self._workers.run_of(agent.uid)
        if run is not None:
            return run.card
        if record is None:
            return None
        try:
            template = parse_template(record.template, record.overrides)
        except InvalidTemplate:  # written for another version; the worker cannot be started either
            return None
        return card_of(agent, record, template)

    def _entry(self, agent: Agent, card: Card | None) -> dict[str, Any]:
        return {
            "uid": agent.uid,
            "nick": agent.nick,
            "kind": agent.kind,
            "org": agent.org,
            "online": None if card is None else self._registry.online(agent.uid),
            "card": None if card is None else self._registry.signed(card),
        }


def bounded(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer with as many entries as fit into a message; `truncated` says whether some are left out."""
    size, fitting = 0, []
    for entry in entries:
        size += len(json.dumps(entry, ensure_ascii=False).encode())
        if size > MAX_ANSWER:
            break
        fitting.append(entry)
    return {"agents": fitting, "truncated": len(fitting) < len(entries)}
