"""Text from agents is hostile: what a terminal would act on is taken out before a person sees it."""

from __future__ import annotations

import re
import unicodedata

# Bidirectional controls reorder what a person reads (CVE-2021-42574); format characters hide text.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


# What begins with ESC, or with its form of one character: CSI, strings to their end, two or three characters.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[PX^_\]]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90-\x9f\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b(?:[NO][ -~]|[ -/]+[0-~]|[=>78DEHMc])"
)


def printable(text: str) -> str:
    """`text` without escape sequences and control and format characters, newline and tab kept."""
    text = _ESCAPES.sub("", text)
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)


def one_line(text: str, limit: int = 0) -> str:
    """`text` printable, on one line, cut to `limit` characters where that is given."""
    line = " ".join(printable(text).split())
    if limit and len(line) > limit:
        return line[: limit - 1] + "…"
    return line
