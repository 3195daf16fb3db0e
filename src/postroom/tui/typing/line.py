"""The line in which the person types: grows with what is pasted, knows what was typed before, and completes.

Above it stands what is said to them: for a while, and again if they ask.
"""

from __future__ import annotations

import time
import unicodedata
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingsMap, BindingType
from textual.timer import Timer
from textual.widgets import Static, TextArea

from postroom.errors import PostroomError
from postroom.tui.news import Typed, trouble
from postroom.tui.typing.completing import Candidate, Completion, Known, complete
from postroom.tui.typing.history import History
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable


class Offer(Static):
    """The candidates above the line."""

    DEFAULT_CSS = """
    Offer { height: auto; display: none; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Offer.-shown { display: block; }
    """
    MOST = 6
    """Rows; in a low terminal fewer."""

    def offer(self, completion: Completion | None, chosen: int = -1) -> None:
        """Show candidates, one of them marked; None or none of them: nothing."""
        candidates = completion.candidates if completion else ()
        self.set_class(bool(candidates), "-shown")
        self.update(self._rows(candidates, chosen) if candidates else "")

    def _rows(self, candidates: tuple[Candidate, ...], chosen: int) -> Text:
        most = self.MOST if self.app.size.height >= 20 else 3
        first = max(0, min(chosen - most + 1, len(candidates) - most)) if chosen >= 0 else 0
        shown = candidates[first : first + most]
        width = min(24, max(len(each.word) for each in shown))
        text = Text(no_wrap=True, overflow="ellipsis")
        for number, each in enumerate(shown, first):
            style = "reverse" if number == chosen else "bold"
            text.append(printable(each.word).ljust(width), style)
            text.append(f"  {one_line(each.about)}\n", "dim")
        left = len(candidates) - first - len(shown)
        if left > 0:
            text.append(f"… {left} more", "dim")
        text.rstrip()
        return text


class TypingLine(TextArea):
    """Sends `Typed` for what was typed.

    Args:
        known: what can be named now.
        history: of the person.
    """

    DEFAULT_CSS = """
    TypingLine, TypingLine:focus {
        height: auto; min-height: 1; max-height: 5; border: none; padding: 0;
        background: transparent; scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "send"),
        Binding("tab", "complete(1)", "complete"),
        Binding("shift+tab", "complete(-1)", "back", show=False),
        Binding("ctrl+j,alt+enter,shift+enter", "insert_line", "new line", key_display="^j"),
        Binding("up", "older", "history", show=False),
        Binding("down", "newer", "newer", show=False),
        Binding("ctrl+r", "search", "search history", show=False),
        # Before all others, so that a key right behind it is no text any more.
        Binding("escape", "leave", "back", priority=True),
    ]

    def __init__(
        self,
        *,
        id: str | None = None,  # noqa: A002 (Textual's word)
        placeholder: str = "",
        known: Callable[[bool], Known] = lambda _paths: Known(),
        history: History | None = None,
        left: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            id=id,
            placeholder=placeholder,
            compact=True,
            highlight_cursor_line=False,
            show_line_numbers=False,
            soft_wrap=True,
        )
        self.cursor_blink = False  # an idle screen costs nothing
        self.typed = history or History()
        self._known = known
        self._left = left
        self._cycle: Completion | None = None
        self._at = -1
        self._searched: tuple[str, int] | None = None
        self._ours = ""

    # ── what was typed ───────────────────────────────────────────────────────────────────────────

    def action_submit(self) -> None:
        """Hand it over; it stands in the line until it is taken."""
        if self._searched is not None:
            self._end_search()
            return
        if self.text.strip():
            self.post_message(Typed(self.text))

    def take(self, text: str) -> None:
        """Take a text out, since it is being done; what was typed behind it in the meantime stays."""
        self._put(self.text.removeprefix(text))

    def begin(self, text: str) -> None:
        """Put the beginning of a command before what stands there."""
        self._put(text + self.text)

    def keep(self, text: str) -> None:
        """Keep in the history what was done."""
        try:
            self.typed.add(text)
        except PostroomError as error:
            self.post_message(trouble(error))

    def give_back(self, text: str) -> None:
        """Put it back, since it was not done; behind what is typed by now."""
        self._put(f"{self.text}\n{text}" if self.text.strip() else text)

    def _put(self, text: str) -> None:
        self._load(text)
        self.typed.rewind()

    def _load(self, text: str) -> None:
        """Put a text there for which nothing is to be offered."""
        self._ours = text
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._offer(None)

    async def on_key(self, event: events.Key) -> None:
        """Do the line's own keys in the order in which they were typed.

        A binding waits until the key has come back to the application; over a slow connection many keys come at once,
        and those behind would be taken before it.
        """
        for binding in _KEYS.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return

    # ── editing ──────────────────────────────────────────────────────────────────────────────────

    def action_insert_line(self) -> None:
        """A new line in the same message."""
        self.insert("\n")

    def action_copy(self) -> None:
        """Copy what is selected; with nothing selected the key is that of the application."""
        if self.selected_text:
            super().action_copy()
        else:
            raise SkipAction

    async def on_paste(self, event: events.Paste) -> None:
        """Take a pasted text as one, without what could do something to the terminal."""
        event.prevent_default()
        event.stop()
        text = harmless(event.text)
        self.replace(text.removesuffix("\n"), *self.selection)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Offer what the word at the cursor may become."""
        event.stop()
        if self.text == self._ours:
            return
        self._ours = ""
        if self._searched is not None:
            self._end_search()
        self._offer(self._completion(paths=False))

    @property
    def _cursor(self) -> int:
        """Characters before the cursor."""
        row, column = self.cursor_location
        return sum(len(line) + 1 for line in self.text.split("\n")[:row]) + column

    def _place(self, index: int) -> tuple[int, int]:
        """The row and column of a character."""
        before = self.text[:index].split("\n")
        return len(before) - 1, len(before[-1])

    # ── completion ───────────────────────────────────────────────────────────────────────────────

    def _completion(self, *, paths: bool) -> Completion | None:
        text = self.text
        if not text.strip():
            return None
        found = complete(text, self._cursor, self._known(paths))
        words = [each.word for each in found.candidates]
        # A word that is finished needs no list.
        return None if not words or words == [text[found.start : found.end]] else found

    def _offer(self, completion: Completion | None, chosen: int = -1) -> None:
        self._cycle = completion if chosen >= 0 else None
        self._at = chosen
        self.screen.query_one(Offer).offer(completion, chosen)

    def action_complete(self, step: int) -> None:
        """Make the word as long as it can be; again, go through the candidates. In an empty line, the next pane."""
        if not self.text.strip():
            (self.screen.focus_next if step > 0 else self.screen.focus_previous)()
            return
        if self._cycle is not None:
            cycle = self._cycle
            at = (self._at + step) % len(cycle.candidates)
            self._choose(cycle, at)
            return
        found = self._completion(paths=True)
        if found is None:
            return
        if len(found.candidates) == 1:
            word = found.candidates[0].word
            self._replace_word(found, word if word.endswith("/") else f"{word} ")
            self._offer(self._completion(paths=True))
        elif len(found.common) > found.end - found.start:
            self._replace_word(found, found.common)
            self._offer(self._completion(paths=True))
        else:
            self._choose(found, 0 if step > 0 else len(found.candidates) - 1)

    def _choose(self, cycle: Completion, at: int) -> None:
        word = cycle.candidates[at].word
        self._replace_word(cycle, word)
        self._offer(Completion(cycle.start, cycle.start + len(word), cycle.candidates), at)

    def _replace_word(self, found: Completion, word: str) -> None:
        text = self.text
        self._ours = text[: found.start] + word + text[found.end :]
        self.replace(word, self._place(found.start), self._place(found.end))
        self.move_cursor(self._place(found.start + len(word)))

    # ── history ──────────────────────────────────────────────────────────────────────────────────

    def action_older(self) -> None:
        """The line before; inside a text of several lines, the row above."""
        if self._cycle is not None:
            self.action_complete(-1)
        elif self.get_cursor_up_location() != self.cursor_location and self.cursor_location[0] > 0:
            self.action_cursor_up()
        else:
            self._recall(self.typed.older(self.text))

    def action_newer(self) -> None:
        """The line after; inside a text of several lines, the row below."""
        if self._cycle is not None:
            self.action_complete(1)
        elif self.cursor_location[0] < self.document.line_count - 1:
            self.action_cursor_down()
        else:
            self._recall(self.typed.newer())

    def _recall(self, line: str | None) -> None:
        if line is None:
            return
        self._load(line)

    def action_search(self) -> None:
        """The newest line that has what stands here; again, the one before it."""
        word, skip = self._searched or (self.text, -1)
        found = self.typed.search(word, skip=skip + 1)
        if found is None:
            self.app.bell()
            return
        self._recall(found)
        self._searched = (word, skip + 1)

    def _end_search(self) -> None:
        self._searched = None
        self.typed.rewind()

    def action_leave(self) -> None:
        """Close the list; else back to where the person was. The text stays."""
        if self._searched is not None:
            word, _ = self._searched
            self._end_search()
            self._recall(word)
        elif self.screen.query_one(Offer).has_class("-shown"):
            self._offer(None)
        else:
            self._offer(None)
            self._left()


def harmless(text: str) -> str:
    """A pasted text without control characters. Those that join or order letters stay: it is the person's text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))


# ── what is said above it ──

STAYS = 10.0
"""Seconds, unless a key is pressed before."""

MOMENT = 1.0
"""Seconds that it stays whatever is typed."""

KEPT = 100
"""Sayings that can be seen again."""


class SaidLine(Static):
    """A few lines; it takes no room while there is nothing to say."""

    DEFAULT_CSS = """
    SaidLine { height: auto; max-height: 6; display: none; padding: 0 1; }
    SaidLine.-shown { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's word)
        super().__init__(id=id, markup=False)
        self._kept: deque[tuple[float, str, bool]] = deque(maxlen=KEPT)
        self._timer: Timer | None = None

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a text; it goes after `STAYS` or at a key."""
        text = printable(text).rstrip()
        self._kept.append((time.time(), text, bad))
        self._show(Text(text), bad=bad)
        self._stop()
        self._timer = self.set_timer(STAYS, self.hush)

    def seen(self) -> None:
        """A key was pressed: what has been there for a moment goes."""
        if self._kept and time.time() - self._kept[-1][0] > MOMENT:
            self.hush()

    def hush(self) -> None:
        """Show nothing."""
        self._stop()
        if self.has_class("-shown"):
            self.remove_class("-shown")
            self.update("")

    def _show(self, text: Text, *, bad: bool) -> None:
        self.update(text)
        self.set_class(bad, "-bad")
        self.add_class("-shown")

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    @property
    def kept(self) -> Sequence[tuple[float, str, bool]]:
        """The last ones, the oldest first: when, what, whether it was bad."""
        return tuple(self._kept)


_KEYS = {
    key: bindings
    for kind in reversed(TypingLine.__mro__)
    for key, bindings in BindingsMap(vars(kind).get("BINDINGS")).key_to_bindings.items()
}
"""The line's own keys, and those of what it is made of."""
