"""The pane: who a worker is and on what it works, above what its agent does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Resize
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from postroom.errors import Forbidden, NotFound, PostroomError
from postroom.lines.rows import Row, Style
from postroom.lines.workers import agent_rows, card_rows, worker_rows
from postroom.tui.looks import text_of
from postroom.tui.news import LOADING, Away, Snapshot, Target, trouble
from postroom.tui.port import ScreenPart
from postroom.tui.rowlog.log import Block, RowLog
from postroom.tui.worker import acts
from postroom.tui.worker.blocks import EventPages
from postroom.tui.worker.tasks import task_blocks

if TYPE_CHECKING:
    from postroom.protocol.shapes import Listed

PAUSE = 0.15
"""Seconds that the person rests on a worker before anything is fetched: who goes through a list asks for nothing."""

LOW, LOWER, LOWEST = 30, 18, 12
"""Lines of the pane below which its head has four rows, two, and one."""

HIDDEN = "what workers do is shown to who operates them (scope operate)"
NO_EVENTS = "it reports no events; its tasks are below"


@dataclass
class _Away(Message):
    """A feed has lost the post room, or has it again. Posted behind what came before."""

    feed: object
    gone: bool


class WorkerPane(ScreenPart, Vertical):
    """What the agent of a worker does, its usage and its tasks."""

    DEFAULT_CSS = """
    WorkerPane > #worker-head { height: auto; padding: 0 1; border-bottom: solid $surface-lighten-2; }
    WorkerPane > #worker-head { text-wrap: nowrap; text-overflow: ellipsis; }
    WorkerPane > RowLog { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *acts.KEYS,
        Binding("h", "head", "head"),
        # Before the rows, which would fold.
        Binding("enter", "zoom", "zoom", priority=True),
    ]

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # Kept, since a message may still come when they are gone from the screen already.
        self._top = Static("choose a worker on the left", id="worker-head", markup=False)
        self._log = RowLog()
        self._target: Target | None = None
        self._feed: EventPages | None = None
        self._resting: Timer | None = None
        self._agent: Listed | None = None
        self._gone = ""
        self._waits = False
        self._loading = False
        self._unfolded = False
        self._known: tuple[Any, ...] = ()

    @property
    def target(self) -> Target | None:
        """Whom it shows."""
        return self._target

    def compose(self) -> ComposeResult:
        """The head and the log."""
        yield self._top
        yield self._log

    def focus(self, scroll_visible: bool = True) -> Self:
        """Focus the log."""
        self._log.focus(scroll_visible)
        return self

    def on_mount(self) -> None:
        """Let ages grow."""
        self.set_interval(10.0, self._draw)

    def on_unmount(self) -> None:
        """Let go of what is followed."""
        self._drop()

    def on_resize(self, _: Resize) -> None:
        """The head has as many rows as there is room for."""
        self._draw()

    # ── what is shown ──

    def show(self, target: Target) -> None:
        """Show another one."""
        if target == self._target or target.is_project:
            return
        self._drop()
        self._target, self._known, self._agent = target, (), None
        self._waits = True
        self._log.clear()
        self._draw()
        self._resting = self.set_timer(PAUSE, self._begin)

    def _drop(self) -> None:
        """What comes of the former one from now on is of no interest."""
        if self._resting is not None:
            self._resting.stop()
        if self._feed is not None:
            self._feed.close()
        self._feed, self._gone = None, ""

    def _begin(self) -> None:
        target = self._target
        if target is None:
            return
        feed: EventPages | None = None

        def away(gone: bool) -> None:
            self.post_message(_Away(feed, gone))

        feed = EventPages(self.port, target, partial(self._put, target), self._ended, away)
        self._feed = feed
        self.run_worker(partial(self._load, feed, target), exclusive=True, group="feed")

    async def _load(self, feed: EventPages, target: Target) -> None:
        try:
            await feed.begin()
        except Forbidden:
            await self._without_events(target, HIDDEN)
        except NotFound as error:
            self._quiet(error.message)
        except PostroomError as error:
            # `on_away` begins anew once the post room is there.
            self._gone = error.message
        else:
            if feed.quiet:
                await self._without_events(target)
            elif not self._log.row_count:
                self._quiet("nothing so far; what it does comes here")
        if target == self._target:
            self._waits = False
            self._draw()

    async def _without_events(self, target: Target, why: str = NO_EVENTS) -> None:
        """Its card and its tasks: it is no worker, or a worker that reports none, or one that is hidden."""
        try:
            agent = await self.port.client.agent(target.uid)
        except PostroomError as error:
            self._quiet(error.message)
            return
        if self._target != target:
            return
        self._agent = agent
        self._draw()
        if agent["kind"] == "worker":
            self._quiet(why)
        self._put(target, [Block(list(card_rows(agent)), key="card")])
        await self._tasks(target, requester=agent["kind"] == "human")

    async def _tasks(self, target: Target, *, requester: bool = False) -> None:
        """Its tasks, for one that has no events."""
        try:
            blocks = await task_blocks(self.port.client, target.uid, requester=requester)
        except PostroomError as error:
            self._quiet(error.message)
            return
        self._put(target, blocks)

    def _put(self, target: Target, blocks: Sequence[Block]) -> None:
        if target == self._target and blocks:
            self._log.put(blocks)

    def _quiet(self, text: str) -> None:
        """A line of ours."""
        self._log.put([Block([Row.of(text, Style.DIM, wraps=True)])])

    def _ended(self, error: PostroomError | None) -> None:
        self._quiet(f"── no more comes: {error.message if error else 'the post room ended it'}")

    def on_row_log_opened(self, event: RowLog.Opened) -> None:
        """Show a task of the list, whole."""
        self._open(event.key)

    def _open(self, key: str) -> bool:
        kind, _, task = key.partition(" ")
        if kind == "task":
            acts.open_task(self.port, task)
        return kind == "task"

    def on_row_log_at_top(self) -> None:
        """Put older events above; it comes again while they are fetched."""
        if self._feed is not None and self._feed.begun and not self._loading:
            self._loading = True
            self.run_worker(partial(self._older, self._feed), group="older")

    async def _older(self, feed: EventPages) -> None:
        try:
            blocks = await feed.older()
        except PostroomError as error:
            self.post_message(trouble(error))
            return
        finally:
            self._loading = False
        if feed is self._feed and blocks:
            self._log.put_before(blocks)

    # ── what happens ──

    def on_snapshot(self, event: Snapshot) -> None:
        """Draw the head anew; one without events has its tasks shown anew when they change."""
        target = self._target
        if target is None:
            return
        worker = event.room.worker(target.uid)
        if worker is None and self._known and self._feed is not None and self._feed.begun:
            self._feed.close()
            self._feed = None
            self._gone = "removed; what it did stays here"
        known = (worker["state"], worker["open_tasks"], worker["task"]) if worker else ()
        changed, self._known = self._known not in ((), known), known or self._known
        if changed and self._feed is not None and (self._feed.quiet or not self._feed.begun):
            self.run_worker(partial(self._tasks, target), exclusive=True, group="feed")
        self._draw()

    def on_away(self, event: Away) -> None:
        """Begin what could not begin while the post room was away."""
        if not event.away and self._feed is not None and not self._feed.begun and self._gone:
            self._gone = ""
            self._begin()

    def on__away(self, event: _Away) -> None:
        """Say that what is shown may be old."""
        if event.feed is self._feed:
            self._gone = "the post room is away; connecting again" if event.gone else ""
            self._draw()

    def _draw(self) -> None:
        """The head."""
        target = self._target
        if target is None or not self.is_mounted:
            return
        height = self.size.height
        most = 1 if height < LOWEST else 2 if height < LOWER else 4 if height < LOW else 9
        most = 9 if self._unfolded else most
        rows = self._head(target, most)
        gone = [Row.of(self._gone, Style.ASKS)] if self._gone else []
        gone += [Row.of(LOADING, Style.DIM)] if self._waits and not gone else []
        self._top.update(text_of([*rows[:most], *gone]))

    def _head(self, target: Target, most: int) -> list[Row]:
        room, now = self.port.room, time.time()
        worker = room.worker(target.uid) if room else None
        if worker is not None:
            return worker_rows(worker, now, most)
        agent = (room.agent(target.uid) if room else None) or self._agent
        return agent_rows(agent, now) if agent else [Row.of(str(target), Style.STRONG)]

    # ── what the person does ──

    def action_head(self) -> None:
        """Show all rows of the head in a low terminal too, or as many as there is room for."""
        self._unfolded = not self._unfolded
        self._draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """The keys of workers are there where a worker is shown."""
        if action == "zoom":
            return self.app.focused is self._log
        return action != "act" or acts.able(self.port, self._target)

    def action_zoom(self) -> None:
        """Open the task under the cursor; else show this pane over the whole width, or go back."""
        if not self._open(self._log.current):
            self.port.zoom("worker")

    def action_act(self, act: str) -> None:
        """Do something to the worker."""
        if self._target is not None:
            acts.ACTS[act](self.port, self._target)
