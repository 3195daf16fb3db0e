"""Characters that take the same columns in every terminal. Pure.

Terminals, and the libraries that count for them, disagree about sequences: a flag, an emoji with a colour of skin, a
character with a tower of marks. Where a row is wider than was counted it runs into what stands beside it.
"""

from __future__ import annotations

import re
import unicodedata

MARKS = 4
"""Marks that one character keeps; real words have no more."""

_LETTERS = {0x1F1E6 + n: chr(ord("A") + n) for n in range(26)}
"""The halves of flags, which are letters by themselves."""

_DROPPED = re.compile(
    "["
    "\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180f"  # choose another form of the character before
    "\U0001f3fb-\U0001f3ff"  # colours of skin
    "\u1160-\u11ff\ud7b0-\ud7ff\uffa0\u3164\u115f"  # parts of Hangul syllables that belong to none, and fillers
    "\u0488\u0489\u1abe\u20dd-\u20e0\u20e2-\u20e4\ua670-\ua672"  # drawn around the character before
    "]"
)


def steady(text: str) -> str:
    """`text` without what makes its width uncertain: sequences become their parts, towers of marks become short."""
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFC", text).translate(_LETTERS)
    parts = _DROPPED.sub("", parts)
    kept: list[str] = []
    marks = MARKS  # a mark at the beginning would stand over what is not this text's
    for char in parts:
        marks = marks + 1 if unicodedata.category(char) in {"Mn", "Mc", "Me"} else 0
        if marks <= MARKS:
            kept.append(char)
    return "".join(kept)
