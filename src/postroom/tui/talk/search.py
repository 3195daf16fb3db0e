"""Search in everything that was said: messages, and the posts of each project.

A result shows when, who to whom, and the line; Enter opens the conversation there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from postroom.errors import PostroomError
from postroom.lines.rows import Row, Span, Style
from postroom.tui.news import Target
from postroom.tui.port import ScreenPart
from postroom.tui.rowlog.log import Block, RowLog
from postroom.tui.talk.blocks import mark_block, message_block
from postroom.view.timeline import at_of
from postroom.view.words import address, gist
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient

PAGE = 50
"""Messages of one answer."""

POSTS = 100
"""Posts of each project that are shown at most, the newest ones."""

SHOWN = 200
"""Characters of a line that was found."""

MORE = "more"

Place = tuple[Target, int | str]
"""A conversation, and the stream sequence of a message in it; or a project, and the id of a post."""


class Search(ScreenPart, ModalScreen[Place | None]):
    """The screen of a search; its result is what to open, None for nothing.

    Args:
        words: that are searched at once; without any it shows what was said last.
    """

    DEFAULT_CSS = """
    Search { align: center middle; }
    Search > Vertical { width: 100%; max-width: 120; height: 100%; background: $surface; }
    Search Static { height: auto; max-height: 2; color: $text-muted; }
    Search Input, Search Input:focus { height: 1; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back"),
        Binding("slash,i", "words", "other words"),
    ]

    def __init__(self, words: str = "") -> None:
        super().__init__()
        self._words = words
        self._found: dict[str, Any] = {}
        self._before: int | None = None
        self._me = ""

    def compose(self) -> ComposeResult:
        """Words, and what was found."""
        with Vertical():
            line = Input(self._words, placeholder="words, or @nick words; Enter searches")
            line.cursor_blink = False
            yield line
            yield Static(markup=False)
            yield RowLog()
            yield Footer()

    def on_mount(self) -> None:
        """Search at once."""
        self._search(self._words)

    def action_words(self) -> None:
        """Type other words."""
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._words = event.value
        self._search(event.value)
        self.query_one(RowLog).focus()

    @work(exclusive=True, group="search")
    async def _search(self, words: str, before: int | None = None) -> None:
        client, log = self.port.client, self.query_one(RowLog)
        self._say("searching …")
        try:
            me, mails, posts = await _find(client, words, before)
        except PostroomError as error:
            self._say(str(error))
            return
        if before is None:
            log.clear()
            self._found.clear()
        else:
            log.put([Block([], f"{MORE}-{before}")])
        self._me = me
        found = sorted([*mails, *posts], key=at_of, reverse=True)
        log.put([self._block(record) for record in found])
        self._before = mails[-1]["seq"] if len(mails) >= PAGE else None
        if self._before is not None:
            log.put([mark_block("Enter here for earlier messages", f"{MORE}-{self._before}")])
        if before is None and found:
            log.go_to(_key(found[0]))
        self._say(self._told(words))

    def _told(self, words: str) -> str:
        count = len(self._found)
        if not count:
            return f"nothing that was said has “{one_line(words, 60)}”: other words with /"
        what = "found, the newest first" if words.strip() else "said last, the newest first"
        return f"{count}{'+' if self._before else ''} {what}; Enter opens the conversation there"

    def _block(self, record: Any) -> Block:
        key = _key(record)
        self._found[key] = record
        sender = record["from"]
        mail = "to" in record
        to = address(record["to"]) if mail else f"#{one_line(record['project'], 64)}"
        when = time.strftime("%a %Y-%m-%d %H:%M ", time.localtime(parse_time(at_of(record))))
        spans = (
            Span(when, Style.DIM),
            Span(address(sender), who=sender["uid"]),
            Span(" → ", Style.DIM),
            Span(to, who=record["to"]["uid"] if mail else ""),
            Span(f": {one_line(gist(record), SHOWN)}"),
        )
        return Block([Row(spans, wraps=True)], key)

    @on(RowLog.Opened)
    def _opened(self, event: RowLog.Opened) -> None:
        event.stop()
        if event.key.startswith(MORE):
            self._search(self._words, self._before)
            return
        record = self._found.get(event.key)
        if record is None:
            return
        if "to" not in record:
            self._leave(Target(record["project"]), record["id"])
            return
        others = [p for p in (record["from"], record["to"]) if p["uid"] != self._me]
        if len(others) == 2:
            # No conversation of the person's: all of it is shown here.
            self.query_one(RowLog).put([message_block(record, event.key, me=self._me)])
            self._say(f"between {address(others[0])} and {address(others[1])}, not with you")
            return
        other = others[0] if others else record["to"]
        self._leave(Target(other.get("nick") or other["uid"], other["uid"]), record["seq"])

    def _leave(self, target: Target, place: int | str) -> None:
        self.dismiss((target, place))

    def _say(self, text: str) -> None:
        self.query_one(Static).update(text)


def _key(record: Any) -> str:
    return f"found-{'mail' if 'to' in record else 'post'}-{record['seq']}"


async def _find(
    client: AsyncClient, text: str, before: int | None
) -> tuple[str, Sequence[Any], Sequence[Any]]:
    """Who looks, messages, and posts (with the newest messages alone), with all words."""
    words = text.split()
    others = [word for word in words if word.startswith("@")]
    said = [word for word in words if not word.startswith("@")]
    other = others[0] if len(others) == 1 else ""
    if not other:
        said = words
    me = (await client.status())["me"]["uid"]
    mails = await client.search(" ".join(said), other=other, limit=PAGE, before=before)
    if before is not None:
        return me, mails, ()
    posts = [
        post
        for project in await client.projects()
        for post in await client.posts(project, text=" ".join(said), limit=POSTS)
        if not other or f"@{post['from'].get('nick')}" == other
    ]
    return me, mails, posts if said else sorted(posts, key=at_of)[-PAGE:]
