"""The pane: the target that is looked at, and the last few before it, which keep their place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar, Self

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from postroom.client.calls import Part
from postroom.errors import InvalidInput
from postroom.tui.news import Chosen, Target
from postroom.tui.port import ScreenPart
from postroom.tui.rowlog.log import RowLog
from postroom.tui.talk.search import Place, Search
from postroom.tui.talk.view import View
from postroom.tui.worker import acts

KEPT = 5
"""Targets whose lines are kept; an older one is read anew."""


class Talk(ScreenPart, Vertical):
    """The feed of a project or the conversation with an agent."""

    DEFAULT_CSS = """
    Talk View { height: 1fr; }
    Talk .head { height: 1; color: $text-muted; text-style: bold; }
    Talk .answers { height: auto; max-height: 2; color: $text-warning; display: none; }
    Talk .nothing { color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *acts.KEYS,
        Binding("F", "search", "search all"),
        # Before the rows, which would fold.
        Binding("enter", "zoom", "zoom", priority=True),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (as Textual has it)
        super().__init__(id=id)
        self._views: OrderedDict[Target, View] = OrderedDict()
        self._shown: View | None = None
        self._place: Place | None = None

    def compose(self) -> ComposeResult:
        """Nothing is chosen yet."""
        yield Static("choose a project or a worker on the left", classes="nothing", markup=False)

    def on_mount(self) -> None:
        """Messages count as seen only while the person is there."""
        self.watch(self.app, "app_focus", self._see, init=False)
        self.screen.screen_layout_refresh_signal.subscribe(self, lambda _: self._see())

    @property
    def target(self) -> Target | None:
        """What is looked at."""
        return self._shown.target if self._shown is not None else None

    @property
    def log_of(self) -> RowLog | None:
        """Its lines."""
        return self._shown.log_of if self._shown is not None else None

    @property
    def ready(self) -> bool:
        """Whether its history is read, and what comes is followed."""
        return self._shown is not None and self._shown.ready

    def show(self, target: Target) -> None:
        """Show another one."""
        place, self._place = self._place, None
        at = place[1] if place is not None and place[0] == target else None
        old = self._shown
        focused = self.has_focus_within or (old is not None and old.wants_focus)
        if at is not None and (gone := self._views.pop(target, None)) is not None:
            self._forget(gone)
        if self._shown is not None and self._shown.target == target:
            return
        if old is not None:
            old.leave()
        self.query(".nothing").remove()
        view = self._views.get(target)
        if view is None:
            view = self._views[target] = View(target, at)
            self.mount(view)
        self._views.move_to_end(target)
        self._shown = view
        view.open()
        if focused:
            view.take_focus()
        while len(self._views) > KEPT:
            self._forget(self._views[next(iter(self._views))])

    def _forget(self, view: View) -> None:
        self._views.pop(view.target, None)
        if self._shown is view:
            self._shown = None
        view.leave()
        view.remove()

    def focus(self, scroll_visible: bool = True, *, from_app_focus: bool = False) -> Self:
        """Focus its lines."""
        del scroll_visible, from_app_focus
        if self._shown is not None:
            self._shown.take_focus()
        return self

    async def send(self, text: str, parts: Sequence[Part] = ()) -> str:
        """Send to what is looked at; returns what the person should know of its recipient, "" for nothing.

        Raises:
            PostroomError: it was not sent, or nobody knows; the same text again never comes twice.
        """
        if self._shown is None:
            raise InvalidInput("nothing was sent: choose a project or a worker first")
        return await self._shown.send(text, parts)

    def open_search(self, words: str = "") -> None:
        """Search in all messages, at once if there are `words`, and show what is chosen of them."""
        self.app.push_screen(Search(words), self._open_at)

    def _open_at(self, place: Place | None) -> None:
        if place is not None:
            self._place = place
            self.port.look("talk")
            self.post_message(Chosen(place[0]))

    def action_search(self) -> None:
        """The same by a key."""
        self.open_search()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """The keys of workers are there in the conversation with one."""
        if action == "zoom":
            return isinstance(self.app.focused, RowLog)
        return action != "act" or acts.able(self.port, self.target)

    def action_zoom(self) -> None:
        """Open what the entry under the cursor is about; else show this pane over the whole width, or go back."""
        if self._shown is None or not self._shown.open_entry():
            self.port.zoom("talk")

    def action_act(self, act: str) -> None:
        """Do something to the worker whom one talks to."""
        if self.target is not None:
            acts.ACTS[act](self.port, self.target)

    def on_screen_resume(self, _event: events.ScreenResume) -> None:
        """A dialog has gone."""
        self._see()

    def _see(self) -> None:
        if self._shown is not None:
            self._shown.see()
