"""What an agent takes: the media types in its Agent Card, compared with the parts of a message before it is sent.

An agent whose card is not known takes everything: it may say so itself, later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from postroom.errors import ContentNotTaken, InvalidInput
from postroom.protocol.blobs import PREFIX, named_in, sha256_of
from postroom.protocol.content import Content
from postroom.protocol.parts import TEXT, TEXT_TYPE, UNKNOWN, kind_of, media_type_of, name_in
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom_a2a.text import one_line

EVERYTHING = "*/*"

SHOWN_MODES = 8
"""Media types that an error lists."""


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


def check_takes(
    card: Mapping[str, Any] | None, parts: Iterable[object], nick: str, skill: str = ""
) -> None:
    """Check that the agent takes every part of a message to it.

    Args:
        card: its Agent Card, None for an unknown one.
        skill: id of the skill that is asked for; its own `inputModes` count where it has some.

    Raises:
        ContentNotTaken: it does not; the error names the part, its media type, and what the agent takes.
    """
    if card is None:
        return
    modes = input_modes(card, skill)
    for number, part in enumerate(parts, 1):
        if not takes(modes, part):
            shown = ", ".join(one_line(mode, 80) for mode in modes[:SHOWN_MODES])
            more = " …" if len(modes) > SHOWN_MODES else ""
            raise ContentNotTaken(
                f"@{nick} does not take {_called(number, part)}",
                remedy=f"it takes {shown}{more}; send the content as that, or to another agent",
            )


def input_modes(card: Mapping[str, Any], skill: str = "") -> Sequence[str]:
    """The media types that the agent of a card takes, for one of its skills or ("") for a message."""
    for entry in card.get("skills", ()) if skill else ():
        if entry.get("id") == skill and entry.get("inputModes"):
            return entry["inputModes"]
    return card.get("defaultInputModes") or (EVERYTHING,)


def takes(modes: Iterable[str], part: object) -> bool:
    """Whether one of `modes` (media types, ranges such as `image/*`, or kinds of parts) covers the part."""
    kind, stated = kind_of(part), media_type_of(part)
    # Who reads plain text reads every text as it is, such as Markdown.
    names = {stated, f"{stated.partition('/')[0]}/*", EVERYTHING}
    names |= {TEXT_TYPE} if kind == TEXT else set()
    # Cards of A2A 0.2 name kinds: `text`, `data`, `file`.
    names |= {kind} if kind != UNKNOWN else set()
    return any(mode.partition(";")[0].strip().lower() in names for mode in modes)


def _called(number: int, part: object) -> str:
    name = name_in(part)
    named = f" ({name})" if name else ""
    kind = kind_of(part) or "an unknown kind of part"
    return f"part {number}{named}: {kind}, {one_line(media_type_of(part), 80)}"
