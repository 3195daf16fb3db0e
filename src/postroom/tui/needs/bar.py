"""The line that says what waits for the person, and what opens the dialogs about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.widgets import Input, Static, TextArea

from postroom.tui.needs.approval import ApprovalDialog
from postroom.tui.needs.dialog import Move, NeedDialog
from postroom.tui.needs.question import QuestionDialog
from postroom.tui.news import Said
from postroom.tui.port import ScreenPart
from postroom.tui.sidebar.pane import Sidebar
from postroom.view.needs import Queue, answerable, asks_in_words, key_of, line_of

if TYPE_CHECKING:
    from postroom.tui.news import Snapshot
    from postroom.view.needs import Need

QUIET = 0.7
"""Seconds without a key after which a dialog may open by itself."""


class NeedsBar(ScreenPart, Static):
    """One line while something waits; a click or ctrl-n opens it.

    Args:
        at_once: the person came for this: the first opens at once, or they are told that nothing waits.

    Attributes:
        by_itself: dialogs open without a key, while that disturbs nobody.
    """

    by_itself = True

    DEFAULT_CSS = """
    NeedsBar { height: 1; background: $warning; color: $text; text-style: bold; padding: 0 1; text-overflow: ellipsis;
        text-wrap: nowrap; }
    """

    def __init__(self, *, at_once: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, markup=False)
        self.queue = Queue()
        self._at_once = at_once
        self._wanted = ""
        self._dialog: NeedDialog | None = None
        self._fresh = True
        self._began = time.time()

    def on_mount(self) -> None:
        """Nothing waits yet."""
        self.display = False

    def on_snapshot(self, event: Snapshot) -> None:
        """Show what waits now; what is new may open by itself."""
        new = self.queue.take(answerable(event.room.needs))
        if self._fresh:
            # What waited before the person came is seen on the left, and opens by a key.
            self._fresh = False
            new = [need for need in new if need.since >= self._began]
        self._say()
        dialog = self._dialog
        if dialog is not None:
            # Else it reads by itself in a moment, or the screen closes.
            if dialog.is_mounted and dialog.query("#box"):
                dialog.tell()
                if dialog.need not in self.queue:
                    dialog.read()
        elif self._wanted:
            self.show_need(self._wanted)
        elif self._at_once:
            self._at_once = False
            if len(self.queue):
                self.show_need()
            else:
                self.port.post_message(Said("nothing waits for you"))
        elif new and self._may_open():
            news = {key_of(need) for need in new}
            first = next(need for need in self.queue.order if key_of(need) in news)
            self._open(first, by_itself=True)

    def _may_open(self) -> bool:
        """Whether the person does nothing that a dialog would disturb."""
        app = self.app
        typing = isinstance(app.focused, Input | TextArea)
        quiet = time.monotonic() - self.port.pressed_at >= QUIET
        return (
            self.by_itself
            and len(app.screen_stack) == 1
            and app.focused is not None
            and not typing
            and quiet
        )

    def show_need(self, id_: str = "") -> None:
        """Open the need with that id, or with an id that begins so; with "" the first, or the next one."""
        if self._dialog is not None:
            if self._dialog.check_action("following", ()):
                self._dialog.action_following()
            return
        if len(self.port.screen_stack) > 1:
            return
        need = self.queue.find(id_) if id_ else self.queue.beside(None, 1)
        if need is None and id_ and self._wanted != id_:
            # It may have come after the last state that the screen knows of.
            self._wanted = id_
            self.port.renew()
            return
        self._wanted = ""
        if need is None:
            self._without_dialog(id_)
        self._open(need)

    def _without_dialog(self, id_: str) -> None:
        """Go to what stands first on the left and is answered in no dialog, or say that there is nothing."""
        needs = self.port.room.needs if self.port.room is not None else ()
        rest = [need for need in needs if not answerable([need])]
        if rest and not id_:
            self.port.screen_stack[0].query_one(Sidebar).open_need(rest[0])
        else:
            said = "that waits for no answer any more" if id_ else "nothing waits for you"
            self.port.post_message(Said(said))

    def on_click(self) -> None:
        """Open the first."""
        self.show_need()

    def _open(self, need: Need | None, *, by_itself: bool = False) -> None:
        if need is None:
            return
        kind = QuestionDialog if asks_in_words(need) else ApprovalDialog
        dialog = kind(need, lambda: self.queue.place(need), by_itself=by_itself)
        self._dialog = dialog
        self.port.push_screen(dialog, lambda move: self._ended(need, move))

    def _ended(self, need: Need, move: Move | None) -> None:
        """Go on with the next one where the person answers, and leave them alone otherwise."""
        self._dialog = None
        match move:
            case Move.DONE:
                after = self.queue.onward(need)
                self.queue.answered(need)
                self._open(after, by_itself=True)
            case Move.LATER:
                self.queue.later(need)
            case Move.NEXT:
                self._open(self.queue.beside(need, 1))
            case Move.BACK:
                self._open(self.queue.beside(need, -1))
        self._say()
        if move in (Move.DONE, Move.GONE):
            self.port.renew()

    def _say(self) -> None:
        """Say what is first."""
        first = self.queue.beside(None, 1)
        self.display = first is not None
        if first is not None:
            waiting = len(self.queue)
            count = f"{waiting} wait · " if waiting > 1 else ""
            # The key comes first: a long line is cut at its end.
            self.update(f"ctrl-n: {count}{line_of(first)}")
