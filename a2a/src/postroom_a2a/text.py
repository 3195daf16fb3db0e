"""Text from agents is hostile: no character that a terminal acts on reaches a person."""

from __future__ import annotations

import re
import unicodedata

__all__ = [
    "one_line",
    "printable",
]

# Bidirectional controls reorder what a person reads (CVE-2021-42574); format characters hide text.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


# Sequences that begin with ESC or its one-character form: CSI, strings to their end, two or three characters.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[PX^_\]]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90-\x9f\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b(?:[NO][ -~]|[ -/]+[0-~]|[=>78DEHMc])"
)


def printable(text: str) -> str:
    """`text` without escape sequences, control and format characters; newline and tab stay."""
    text = _ESCAPES.sub("", text)
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)


def one_line(text: str, limit: int = 0) -> str:
    """`text` printable, on one line, cut to `limit` characters (0: not cut)."""
    line = " ".join(printable(text).split())
    if limit and len(line) > limit:
        return line[: limit - 1] + "…"
    return line
