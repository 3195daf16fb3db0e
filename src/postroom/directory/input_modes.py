"""Whether a message may be sent as it is: its recipient takes every part, and its files are there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol.blobs import PREFIX, named_in, sha256_of
from postroom.protocol.content import Content
from postroom.protocol.input_modes import check_takes
from postroom.protocol.parts import TEXT, kind_of
from postroom.store.agents import Agent
from postroom.store.database import Store

Cards = Callable[[str], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""Returns cards by uid, at least that of the agent with the given uid if it has one."""


async def _no_cards(_: str) -> Mapping[str, Mapping[str, Any]]:
    return {}


class Takers:
    """Asks the cards of an organisation's agents before anything is sent to them.

    Attributes:
        cards: set once the agents are there; until then every card is unknown.
    """

    def __init__(self, cards: Cards = _no_cards) -> None:
        self.cards = cards

    async def check(self, agent: Agent, said: Content, skill: str = "") -> None:
        """As `check_takes`, for one agent."""
        # People read everything, and every adapter takes texts: most messages need no card.
        plain = all(kind_of(part) == TEXT for part in said.parts)
        if agent.kind == "human" or (agent.kind == "worker" and plain and not skill):
            return
        card = (await self.cards(agent.uid)).get(agent.uid)
        check_takes(card, said.parts, agent.nick, skill)


def check_files(store: Store, sender: str, said: Content) -> dict[str, int]:
    """The sizes of the blobs that are named, by hash.

    Naming a blob that the sender may not read would give its recipient nothing.

    Raises:
        InvalidInput: a blob does not exist, or `sender` may not read it.
    """
    hashes = named_in({"parts": list(said.parts)})
    sizes = store.blobs.sizes(hashes, sender)
    for number, part in enumerate(said.parts, 1):
        url = part.get("url")
        if isinstance(url, str) and url.startswith(PREFIX) and sha256_of(url) not in sizes:
            raise InvalidInput(
                f"part {number} names a blob that is not there, or that you may not read",
                remedy="upload it first: postroom send --file PATH does, or postroom blob put PATH",
            )
    return sizes
