"""Addresses of web pages in rows. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit, urlunsplit

MOST = 2000
"""Characters of an address; a longer one is none."""

_FOUND = re.compile(rf"https?://[^\s<>\"`{{}}|\\^]{{1,{MOST}}}", re.IGNORECASE)
_PLAIN = re.compile(r"https?://[A-Za-z0-9.\-:\[\]]+(?:[/?#][!-~]*)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9.\-]+")
_BEHIND = ".,;:!?'*_"
"""Signs at the end of an address that belong to the sentence around it."""

_PAIRS = {")": "(", "]": "["}


@dataclass(frozen=True, slots=True)
class Link:
    """An address in a row.

    Attributes:
        url: what is opened: http or https, printable ASCII.
        start, end: where it stands in the row's text, without the indent.
        plain: it stands there exactly as it is opened, and nothing in it misleads about the host.
    """

    url: str
    start: int
    end: int
    plain: bool


@lru_cache(maxsize=256)
def links(text: str) -> tuple[Link, ...]:
    """The addresses in a text."""
    return tuple(_links(text)) if "://" in text else ()


def _links(text: str) -> Iterator[Link]:
    for match in _FOUND.finditer(text):
        shown = _trimmed(match.group())
        url = opened(shown)
        if url is not None and max(len(url), len(match.group())) <= MOST:
            plain = url == shown and _PLAIN.fullmatch(url) is not None
            yield Link(url, match.start(), match.start() + len(shown), plain)


def opened(shown: str) -> str | None:
    """The address that is opened for one that is shown, its host in punycode; None if it is no address."""
    try:
        parts = urlsplit(shown)
        host, port = parts.hostname or "", parts.port
        if parts.scheme.lower() not in {"http", "https"} or not host:
            return None
        if shown.isascii():
            return shown if shown.isprintable() and " " not in shown else None
        name = host.encode("idna").decode("ascii")
        if not _NAME.fullmatch(name):
            return None
    except (ValueError, UnicodeError):  # no port, no host, or none that a name could have
        return None
    place = name if port is None else f"{name}:{port}"
    rest = (quote(part, safe="/%:=&?~+!$,;'@()*[]#") for part in parts[2:])
    return urlunsplit((parts.scheme.lower(), place, *rest))


def _trimmed(text: str) -> str:
    """An address without the signs of the sentence that it ends."""
    while text:
        last = text[-1]
        unpaired = last in _PAIRS and text.count(last) > text.count(_PAIRS[last])
        if last not in _BEHIND and not unpaired:
            break
        text = text[:-1]
    return text
