"""Text from agents is hostile: what a terminal would act on is taken out before a person sees it."""

from __future__ import annotations

import unicodedata

# Bidirectional controls reorder what a person reads (CVE-2021-42574); format characters hide text.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """`text` with every control and format character taken out, newline and tab kept."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)


def one_line(text: str, limit: int = 0) -> str:
    """`text` printable, on one line, cut to `limit` characters where that is given."""
    line = " ".join(printable(text).split())
    if limit and len(line) > limit:
        return line[: limit - 1] + "…"
    return line
