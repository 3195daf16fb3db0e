"""The media types that an Agent Card names, compared with the parts of a message. Pure.

An agent whose card is not known takes everything: it may say so itself, later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from postroom.errors import ContentNotTaken
from postroom.protocol.parts import TEXT, TEXT_TYPE, UNKNOWN, kind_of, media_type_of, name_in
from postroom_a2a.text import one_line

EVERYTHING = "*/*"

SHOWN_MODES = 8
"""Media types that an error lists."""


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
