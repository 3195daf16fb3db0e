"""Addresses of web pages in rows, and opening one: at once if it is what it seems, else after the person saw it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar
from urllib.parse import quote, urlsplit, urlunsplit

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from postroom.tui.news import Said

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


def choose(app: App[object], found: Sequence[Link], *, ask: bool = False) -> None:
    """Open the link, or let the person choose; one whose address is not what is shown is always asked for."""
    if not ask and len(found) == 1 and found[0].plain:
        open_link(app, found[0].url)
    else:
        app.push_screen(Links([link.url for link in found]))


def open_link(app: App[object], url: str) -> None:
    """Open an address in the browser; over ssh, where that would be another machine's, copy it."""
    if "SSH_CONNECTION" in os.environ and not os.environ.get("BROWSER"):
        app.copy_to_clipboard(url)
        app.screen.post_message(Said(f"copied {url}"))
    else:
        app.open_url(url)
        app.screen.post_message(Said(f"opened {url}"))


class Links(ModalScreen[None]):
    """Addresses, exactly as they are opened."""

    DEFAULT_CSS = """
    Links { align: center middle; }
    Links > Vertical { width: 90%; max-width: 100; height: auto; max-height: 80%; border: round $primary; }
    Links OptionList { height: auto; max-height: 12; border: none; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__()
        self._urls = list(urls)

    def compose(self) -> ComposeResult:
        """A line of what this is, and the addresses."""
        with Vertical():
            yield Static("Open which address? Enter opens, Esc goes back.", markup=False)
            yield OptionList(*(Option(Text(url, overflow="fold")) for url in self._urls))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open it."""
        event.stop()
        self.dismiss()
        open_link(self.app, self._urls[event.option_index])

    def action_leave(self) -> None:
        """Open none."""
        self.dismiss()
