"""The application: its layout, its keys, and what goes from part to part."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.css.query import NoMatches
from textual.widgets import Input, Static, TextArea
from textual.worker import WorkerFailed

from postroom.errors import PostroomError
from postroom.tui.ending import Unexpected, on_signals
from postroom.tui.frame import Head, KeyLine
from postroom.tui.link import Link
from postroom.tui.looks import native
from postroom.tui.needs.bar import NeedsBar
from postroom.tui.news import (
    Away,
    Chosen,
    NeedChosen,
    Said,
    Snapshot,
    Target,
    Typed,
    Unsent,
    trouble,
)
from postroom.tui.notify import Notices, Way
from postroom.tui.port import ScreenPart
from postroom.tui.sidebar.pane import Sidebar
from postroom.tui.talk.pane import Talk
from postroom.tui.typing.completing import Known, known_of, no_paths, paths
from postroom.tui.typing.doing import Doing
from postroom.tui.typing.line import Offer, SaidLine, TypingLine, harmless
from postroom.tui.worker.changes import Review
from postroom.tui.worker.pane import WorkerPane

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.driver import Driver

    from postroom.client.http import AsyncClient
    from postroom.tui.here import Here
    from postroom.tui.typing.commands import Command, Plain
    from postroom.tui.typing.history import History
    from postroom.view.room import Room

PANES = ("sidebar", "talk", "worker")

LEAST = (30, 8)
"""Columns and lines below which nothing useful fits."""


def _palette() -> type[Provider]:
    from postroom.tui.typing.help import Palette

    return Palette


def _behind_escape(event: events.Key) -> str:
    """The letter of what may be Alt with a letter, or Esc and then the letter: terminals write both alike.

    No key here needs Alt. A terminal that tells the two apart gives Alt with a letter no character.
    """
    letter = event.character or ""
    return letter if event.key.startswith("alt+") and letter.isalnum() else ""


class PostroomApp(ScreenPart, App[int]):
    """The screen.

    Args:
        client: of the post room; the screen closes it.
        start: what is shown first, None for the first project.
        needs: open the first dialog at once, as `postroom approvals` does.
        history: what the person has typed before; None for nothing, and nothing is kept.
        notify: how to call a person who looks elsewhere.
        here: the post room, where it is one of this machine.

    Attributes:
        target: what is looked at, None for nothing yet.
        review: what is seen of changes, and said about them; `running.run` has it kept.
        terminal: writes to it, None before the screen opens.
        failure: the exception that ended the screen, None for none.
        pane: the last one that was looked at, one of `PANES`.
    """

    CSS_PATH = "screen.tcss"
    TITLE = "postroom"
    # Narrow: one pane at a time. Normal: the left, and one of the others. Wide: all three.
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 (as Textual declares it)
        (0, "-narrow"),
        (60, "-normal"),
        (120, "-wide"),
    ]
    COMMANDS = {_palette}  # noqa: RUF012 (as Textual declares it)
    COMMAND_PALETTE_DISPLAY = "^p"
    BINDINGS: ClassVar[list[BindingType]] = [
        # In this order they stand at the bottom; KeyLine knows which ones go where there is no room.
        Binding("1", "look('sidebar')", "rooms"),
        Binding("2", "look('talk')", "talk"),
        Binding("3", "look('worker')", "worker"),
        Binding("n", "next_need", "needs"),
        Binding("i", "type", "type", priority=True),
        Binding("slash", "type('/')", "command", key_display="/", show=False, priority=True),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("u", "up", "start it"),
        Binding("q", "quit", "leave"),
        Binding("ctrl+n", "next_need", show=False, priority=True),
        Binding("escape", "list", "back", show=False),
        Binding("ctrl+l", "log", "what was said", show=False),
        Binding("ctrl+q", "quit", "leave", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "to the shell", show=False, priority=True),
    ]

    def __init__(
        self,
        client: AsyncClient,
        *,
        start: Target | None = None,
        needs: bool = False,
        history: History | None = None,
        notify: Way = Way.OFF,
        here: Here | None = None,
    ) -> None:
        super().__init__(ansi_color=native())
        self.client = client
        self.here = here
        self.review = Review()
        self.link: Link | None = None
        self.room: Room | None = None
        self.target: Target | None = None
        # When a key was last pressed: no dialog opens by itself right after it.
        self.pressed_at = 0.0
        self.notices = Notices(
            notify, self.to_terminal, pressed_at=lambda: self.pressed_at, environment=os.environ
        )
        self.terminal: Driver | None = None
        self.failure: Exception | None = None
        # Textual would write tracebacks there, with the values of all variables.
        self.error_console = Console(quiet=True)
        self.animation_level = "none"
        self._start, self._needs, self._history = start, needs, history
        self._doing = Doing(self, here)
        self.pane = "sidebar"
        self._unexpected: Unexpected | None = None
        self._templates: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        """The panes, and below them what is said, the line and the keys."""
        yield Head(self.here.command if self.here else "", id="head")
        with Horizontal(id="panes"):
            yield Sidebar(id="sidebar")
            yield Talk(id="talk")
            yield WorkerPane(id="worker")
        yield NeedsBar(id="needs-bar", at_once=self._needs)
        yield SaidLine(id="said")
        yield Offer(id="offer")
        with Horizontal(id="entry"):
            yield Static(">", id="mark", markup=False)
            yield TypingLine(
                id="typing",
                placeholder="a message, or / for commands",
                known=self._known,
                history=self._history,
                left=lambda: self._focus(self.pane),
            )
        yield Static(f"postroom needs {LEAST[0]}x{LEAST[1]}", id="tiny", markup=False)
        yield KeyLine(compact=True)

    def on_mount(self) -> None:
        """Show what was asked for."""
        self._unexpected = Unexpected(self, self._handle_exception)
        if not self.is_headless:
            on_signals(self)
        self.look("sidebar")
        if self._start is not None:
            self.post_message(Chosen(self._start))
        self.link = Link(self, self.client)
        self.link.start()
        if self.here is not None and self.here.said:
            self.post_message(Said(self.here.said))
        self.app_resume_signal.subscribe(self, self._come_back)

    def _come_back(self, _: App[int]) -> None:
        """Draw all of it again: meanwhile the terminal was another program's."""
        self.refresh(layout=True)
        self.screen.refresh(layout=True)

    async def on_unmount(self) -> None:
        """Let go of what runs."""
        if self.link is not None:
            self.link.close()
        self.notices.close()
        await self.client.close()
        if self._unexpected is not None:
            self._unexpected.close()

    # ── panes ────────────────────────────────────────────────────────────────────────────────────

    def look(self, pane: str, *, focus: bool = True) -> None:
        """Show a pane (`sidebar`, `talk`, `worker`), where not all fit, and focus it."""
        base = self.screen_stack[0]
        for name in PANES:
            base.set_class(name == pane, f"-{name}")
        if pane != "sidebar":
            # Beside the left pane there is room for one: the last one that was looked at.
            base.set_class(pane == "worker", "-beside-worker")
        if pane == "sidebar":
            base.remove_class("-zoomed")
        self.pane = pane
        if focus:
            self._focus(pane)

    def zoom(self, pane: str) -> None:
        """Show that pane alone, over the whole width; where it is so, all that fit again."""
        self.look(pane, focus=False)
        if not self.screen_stack[0].has_class("-narrow"):  # there it is so anyway
            self.screen_stack[0].toggle_class("-zoomed")

    def _focus(self, pane: str) -> None:
        """Give the keys to a pane, or to the first of its widgets that takes them."""
        widget = self.screen_stack[0].query_one(f"#{pane}")
        if isinstance(widget, Talk):  # it knows which of its logs is shown
            widget.focus()
            return
        able = (each for each in (widget, *widget.query("*")) if each.focusable)
        self.screen_stack[0].set_focus(next(able, None))

    def action_look(self, pane: str) -> None:
        """The same by a key; from the list it is about the worker that is selected there."""
        sidebar = self.screen_stack[0].query_one(Sidebar)
        selected = sidebar.target() if sidebar.has_focus and pane == "worker" else None
        if selected is not None and not selected.is_project:
            self._show_target(selected)
        self.look(pane)

    def action_list(self) -> None:
        """From the line to the pane before it, from there to the list."""
        self.look("sidebar")

    def action_next_need(self) -> None:
        """Open what needs the person next."""
        self.screen_stack[0].query_one(NeedsBar).show_need()

    def on_need_chosen(self, event: NeedChosen) -> None:
        """Open it."""
        self.screen_stack[0].query_one(NeedsBar).show_need(event.id)

    def on_chosen(self, event: Chosen) -> None:
        """Show it."""
        self.choose(event.target)

    def choose(self, target: Target) -> None:
        """Show a project or an agent in the middle, and a worker on the right."""
        if not self.query(Sidebar):
            return  # the screen closes
        by_itself = self.target is None and self._start is None
        self._show_target(target, select=not by_itself)
        # Who types goes on typing; what the screen chose at its start is nobody's wish to leave the list.
        if not by_itself:
            self.look("talk", focus=not isinstance(self.focused, TypingLine))

    def _show_target(self, target: Target, *, select: bool = True) -> None:
        """Have each pane be about it."""
        base = self.screen_stack[0]
        self.target = target
        base.query_one(Sidebar).show(target, select=select)
        base.query_one(Talk).show(target)
        if not target.is_project:
            base.query_one(WorkerPane).show(target)
        base.query_one("#mark", Static).update(f"{target}>")

    def on_snapshot(self, event: Snapshot) -> None:
        """Keep the newest state, and call the person where it needs them."""
        first, self.room = self.room is None, event.room
        if first and self.here is not None and self.here.offers and not event.room.hidden:
            from postroom.tui.here import offer

            self.run_worker(partial(offer, self, self.here, event.room), group="offer")
        self.notices.see(event.room)

    def on_away(self, _: Away) -> None:
        """The key that starts it comes or goes."""
        if self.screen_stack:  # else the screen closes
            self.refresh_bindings()

    def action_up(self) -> None:
        """Start the post room again."""
        if self.here is not None:
            from postroom.tui.here import start

            self.run_worker(partial(start, self, self.here), group="up", exclusive=True)

    def renew(self) -> None:
        """Fetch the state soon: something was done that the post room tells nobody, such as reading a message."""
        if self.link is not None:
            self.link.refresh()

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver for this terminal, which is kept, so that `to_terminal` has a way."""
        app, chosen = self, super().get_driver_class()

        class Kept(chosen):  # ty: ignore[unsupported-base]
            def start_application_mode(self) -> None:
                """As the driver's; from now on the terminal can be written to."""
                app.terminal = self
                super().start_application_mode()

        return Kept

    def to_terminal(self, sequence: str) -> None:
        """Write to the terminal, between two frames."""
        if self.terminal is not None:
            self.terminal.write(sequence)

    def on_app_focus(self) -> None:
        """The person looks here."""
        self.notices.focus(True)

    def on_app_blur(self) -> None:
        """The person looks elsewhere."""
        self.notices.focus(False)

    def on_resize(self, event: events.Resize) -> None:
        """Say so in one line where nothing useful fits."""
        columns, lines = event.size
        self.screen_stack[0].set_class(columns < LEAST[0] or lines < LEAST[1], "-too-small")

    # ── the line ─────────────────────────────────────────────────────────────────────────────────

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters begin to type only where no text is typed yet and no dialog is open."""
        if action == "up":
            return self.here is not None and self.link is not None and self.link.away is not None
        if action == "type":
            filters = isinstance(self.focused, Sidebar) and self.focused.filters
            if parameters and filters:  # there the key is the list's own
                return False
            return len(self.screen_stack) == 1 and not isinstance(self.focused, Input | TextArea)
        return super().check_action(action, parameters)

    def action_type(self, text: str = "") -> None:
        """Type."""
        line = self.screen_stack[0].query_one(TypingLine)
        # At once: the keys behind this one are text.
        self.screen_stack[0].set_focus(line)
        if text and not line.text:
            line.insert(text)

    def begin(self, text: str) -> None:
        """Type a command whose beginning stands there."""
        line = self.screen_stack[0].query_one(TypingLine)
        line.focus()
        line.begin(text)

    def on_typed(self, event: Typed) -> None:
        """Do what was typed; what cannot be done stays in the line."""
        line = self.query_one(TypingLine)
        try:
            meant = self._doing.check(event.text)
        except PostroomError as error:
            self.on_said(trouble(error))
            return
        line.take(event.text)
        line.keep(event.text)
        self._carry_out(meant, event.text)

    @work(group="typed", exit_on_error=True)
    async def _carry_out(self, meant: Command | Plain, text: str) -> None:
        try:
            await self._doing.do(meant)
        except PostroomError as error:
            self.on_said(trouble(error))
            self.query_one(TypingLine).give_back(text)

    def on_unsent(self, event: Unsent) -> None:
        """A text that was not sent goes back into the line."""
        self.query_one(TypingLine).give_back(event.text)

    def _known(self, with_paths: bool) -> Known:
        if not self._templates:
            from postroom.templates.shipped import names

            self._templates = names()
        return known_of(self.room, self._templates, paths if with_paths else no_paths)

    def on_said(self, event: Said) -> None:
        """Show it above the line, and in each screen over the panes that has a place for it."""
        for said in self._said_lines():
            said.say(event.text, bad=event.bad)

    def _said_lines(self) -> Iterator[SaidLine]:
        return (line for screen in self.screen_stack for line in screen.query(SaidLine))

    async def on_event(self, event: events.Event) -> None:
        """Note when a key was pressed; it ends what was said. What is pasted gets no further as it is."""
        if isinstance(event, events.Paste):
            # Into a line of any dialog: those would write its control characters to the terminal.
            event.text = harmless(event.text)
        if isinstance(event, events.Key) and (letter := _behind_escape(event)):
            await self.on_event(events.Key("escape", "\x1b"))
            event = events.Key(letter, letter)
        if isinstance(event, events.Key | events.Paste):
            self.pressed_at = time.monotonic()
        if isinstance(event, events.Key) and not event.is_forwarded:
            for said in self._said_lines():
                said.seen()
        await super().on_event(event)

    # ── over the panes ───────────────────────────────────────────────────────────────────────────

    def action_help(self) -> None:
        """All keys and commands."""
        from postroom.tui.typing.help import help_page

        self.push_screen(help_page(self))

    def action_log(self) -> None:
        """What was said before."""
        from postroom.tui.typing.help import log_page

        self.push_screen(log_page(self.screen_stack[0].query_one(SaidLine).kept))

    def action_help_quit(self) -> None:
        """Ctrl-C ends nothing: who presses it may have meant a worker, or a text to copy."""
        typing = isinstance(self.focused, TypingLine)
        self.on_said(Said(f"to leave press {'ctrl-q' if typing else 'q'}; everything goes on"))

    @property
    def at_work(self) -> bool:
        """Whether the screen is there, and does not end."""
        return self.is_running and any(screen.is_attached for screen in self.screen_stack)

    def _handle_exception(self, error: Exception) -> None:
        """End, and keep the error for the file of details.

        Textual has no public place for this; without it, the screen ends all the same, and the details are missing.
        """
        cause = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(cause, NoMatches) and not self.at_work:
            return  # a late result for a widget that has gone with the screen, which ends anyway
        if self.failure is None:
            self.failure = cause if isinstance(cause, Exception) else error
        self.exit(return_code=1)
