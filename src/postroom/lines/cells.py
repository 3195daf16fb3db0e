"""Characters that take the same columns in every terminal. Pure.

Terminals, and the libraries that count for them, disagree about sequences: a flag, an emoji with a colour of skin, a
character with a tower of marks. Where a row is wider than was counted it runs into what stands beside it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

MARKS = 4
"""Marks that one character keeps; real words have no more."""

_LETTERS = {0x1F1E6 + n: chr(ord("A") + n) for n in range(26)}
"""The halves of flags, which are letters by themselves."""

_DROPPED = re.compile(
    "["
    "\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180f"  # choose another form of the character before
    "\U0001f3fb-\U0001f3ff"  # colours of skin
    "\u1160-\u11ff\ud7b0-\ud7ff\uffa0\u3164\u115f\u034f\u17b4\u17b5"  # stray parts of Hangul syllables, fillers
    "\u0488\u0489\u1abe\u20dd-\u20e0\u20e2-\u20e4\ua670-\ua672"  # drawn around the character before
    "]"
)


_UNSURE = re.compile("[\u2630-\u2637\u268a-\u268f\u4dc0-\u4dff\U0001d300-\U0001d376]")
"""Signs that are one column in some terminals and two in others."""

UNKNOWN = "\ufffd"

_SYLLABLES = re.compile("[\u1100-\u11ff]{2,}")
_COMPOSED = re.compile(".[\u0300-\u036f\u3099\u309a]+|[\u1100-\u11ff]{2,}")
"""What has a character of its own; others that look the same stay what they are."""


def steady(text: str, other: Callable[[str], str] | None = None) -> str:
    """`text` without what makes its width uncertain: sequences become their parts, towers of marks become short.

    Args:
        other: what stands in the place of a character that would go; None for nothing.
    """
    if text.isascii():
        return text
    if other is None:
        text = text.translate(_LETTERS)
    kept: list[str] = []
    marks = MARKS  # a mark at the beginning would stand over what is not this text's
    for char in (_COMPOSED if other is None else _SYLLABLES).sub(_composed, text):
        marks = marks + 1 if unicodedata.category(char) in {"Mn", "Mc", "Me"} else 0
        unsure = _UNSURE.match(char) is not None
        if marks <= MARKS and ord(char) not in _LETTERS and not (unsure or _DROPPED.match(char)):
            kept.append(char)
        elif other is not None:
            kept.append(other(char))
        elif unsure:
            kept.append(UNKNOWN)
    return "".join(kept)


def _composed(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", found.group())
