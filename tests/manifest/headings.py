"""The anchors that a rendered Markdown document offers for its headings."""

from __future__ import annotations

import re

_HEADING = re.compile(r"#{1,6} +(?P<title>.+?)(?: +#+)?")
_FENCE = re.compile(r"(```|~~~)")
_DROPPED = re.compile(r"[^\w\- ]")


def anchors(text: str) -> set[str]:
    """Anchors as GitHub makes them: lower case, punctuation dropped, spaces to hyphens, repeats numbered."""
    found: set[str] = set()
    repeats: dict[str, int] = {}
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line.lstrip()):
            fenced = not fenced
        heading = None if fenced else _HEADING.fullmatch(line.rstrip())
        if heading:
            slug = _DROPPED.sub("", heading["title"].lower()).replace(" ", "-")
            count = repeats.get(slug, 0)
            repeats[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
    return found
