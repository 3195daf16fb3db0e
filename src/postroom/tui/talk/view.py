"""One feed or conversation: its history, what comes, what is sent.

It is read only while it is shown: coming back, it goes on after what came last. Its lines and its place stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from postroom.client.calls import Part
from postroom.client.targets import ActivityTarget, AgentTarget
from postroom.errors import NotFound, PostroomError
from postroom.tui.following import follow
from postroom.tui.news import LOADING, Away, NeedChosen, Said, Snapshot, Target
from postroom.tui.port import ScreenPart
from postroom.tui.rowlog.log import RowLog
from postroom.tui.talk.blocks import block_of
from postroom.tui.talk.sending import Attempts
from postroom.tui.worker import acts
from postroom.view.needs import ANSWERED
from postroom.view.room import Room
from postroom.view.timeline import Timeline, TimelineEntry, before
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from textual.worker import Worker

    from postroom.client.stream import Event

PAGE = 100
"""Records that are read at a time."""

PATIENCE = 5.0
"""Seconds in which what is sent waits for the first of them."""


class View(ScreenPart, Vertical):
    """The pane of one target.

    Args:
        place: stream sequence of a message of the conversation, or id of a post, to show first; None for the end.
    """

    def __init__(self, target: Target, place: int | str | None = None) -> None:
        super().__init__()
        self.target = target
        self._place = place
        self._feed: Timeline | None = None
        self._source: ActivityTarget | AgentTarget | None = None
        self._following: Worker[None] | None = None
        self._last: int | str = 0
        self._since = self._loaded = 0.0
        self._at_beginning = False
        self._unseen: dict[str, Any] = {}
        self._attempts = Attempts()
        self._away = False
        self._begun = asyncio.Event()
        self._is_open = self._waits = False
        self._instead_of: Widget | None = None
        self._log = RowLog()
        self._head = Static(classes="head", markup=False)
        self._answers = Static(classes="answers", markup=False)

    @property
    def ready(self) -> bool:
        """Whether its history is read, and what comes is followed."""
        return self._following is not None

    @property
    def log_of(self) -> RowLog:
        """Its lines."""
        return self._log

    def compose(self) -> ComposeResult:
        """A head, the lines, and what the next line answers."""
        yield self._head
        yield self._log
        yield self._answers

    def on_mount(self) -> None:
        """Watch for the end of the lines: what is there counts as seen."""
        self.watch(self._log, "scroll_y", self.see, init=False)
        self._tell()
        if self._is_open:
            self._start()
        if self.wants_focus:
            self.take_focus()

    @property
    def wants_focus(self) -> bool:
        """Whether it takes the focus once it is there: unless something else has got it meanwhile."""
        now = self.app.screen_stack[0].focused
        return self._waits and (
            now is None or now is self._instead_of or self.parent in now.ancestors
        )

    def take_focus(self) -> None:
        """Focus its lines, as soon as they are there; at once, so that who switches then takes the focus along."""
        self._waits = not self._log.is_attached
        if self._waits:
            self._instead_of = self.app.screen_stack[0].focused
        else:
            self.screen.set_focus(self._log)

    # ── shown and hidden ──

    def open(self) -> None:
        """Show what is there, and what comes."""
        self.display = self._is_open = True
        if self.is_mounted:
            self._start()

    def leave(self) -> None:
        """Read no further."""
        self.display = self._is_open = self._waits = False
        self.workers.cancel_group(self, "start")
        self._stop()

    def on_unmount(self) -> None:
        """Let go of the stream."""
        self._stop()

    def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    @work(exclusive=True, group="start")
    async def _start(self) -> None:
        try:
            if self._feed is None:
                await self._load()
            else:
                self._since = time.time()
                await self._look_again()
        except PostroomError as error:
            self._away = True
            self._begun.set()
            self._tell()
            self.post_message(Said(str(error), bad=True))
            return
        self._stop()
        self._following = self.run_worker(self._follow, group="follow")
        self._see()

    async def _follow(self) -> None:
        assert self._source is not None  # noqa: S101 (loaded before)
        try:
            await follow(self._source.follow(self._last, self._went), self._take)
        except PostroomError as error:
            self.post_message(Said(f"{self.target}: {error}", bad=True))

    async def _load(self) -> None:
        """The newest page, or the one with the place."""
        client, target = self.port.client, self.target
        source = (
            ActivityTarget(client, target.name)
            if target.is_project
            else AgentTarget(client, target.uid)
        )
        place = self._place

        at = place + 1 if isinstance(place, int) else None
        status, records = await asyncio.gather(client.status(), source.history(PAGE, at))
        feed = Timeline(status["me"])
        self._source, self._feed, self._away = source, feed, False
        self._begun.set()
        entries = feed.newest(records)
        self._loaded = time.time()
        self._last = max((one.get("seq", 0) for one in records), default=0)
        self._hear(records)
        if not source.has_earlier:
            self._begin()
        self._put(entries)
        self._tell_waiting(self.port.room)
        if place is not None:
            await self._go_to(place, records)
        self._tell()
        self._read_answers()

    async def _go_to(self, place: int | str, records: Sequence[Any]) -> None:
        """Show a record, after reading back to it."""
        assert self._feed is not None  # noqa: S101 (loaded)
        if isinstance(place, int):
            self._log.go_to(next((r["id"] for r in records[::-1] if r["seq"] == place), ""))
            return
        while not self._log.go_to(self._feed.key_of(place)) and not self._at_beginning:
            await self._earlier()

    async def _look_again(self) -> None:
        """States that have changed unseen, of messages that are shown."""
        feed, client = self._feed, self.port.client
        if feed is None or self.target.is_project or not feed.unsettled:
            return
        uid = self.target.uid
        records = await client.chat(uid, limit=PAGE)
        self._put(entry for record in records for entry in feed.changed(record))
        for one in records:
            self._unseen.pop(one["id"], None) if not feed.is_unread(one) else None
        self._read_answers()

    # ── what comes ──

    def _take(self, events: Sequence[Event]) -> None:
        feed = self._feed
        if feed is None or not self._log.is_running:
            return
        records = [event.data for event in events if event.kind in ("post", "mail", "activity")]
        watched = self._watched

        def new(record: Any) -> bool:
            """Whether it came while the person looked elsewhere."""
            if before(record, self._loaded):  # behind the place that was opened
                return feed.is_unread(record)
            return not watched or before(record, self._since)

        entries = feed.newer(records, new=new)
        for event in events:
            if event.kind == "receipt":
                entries += feed.changed(event.data)
            elif event.is_record:
                self._last = event.id
        self._put(entries)
        self._hear(records)
        self._see()
        self._read_answers()

    def _put(self, entries: Iterable[TimelineEntry]) -> None:
        assert self._feed is not None  # noqa: S101 (loaded)
        self._log.put([block_of(entry, self._feed.me) for entry in entries])

    def _went(self, gone: bool) -> None:
        self._away = gone
        self._tell()
        if not gone and self.is_attached:
            self._again()

    def on_snapshot(self, event: Snapshot) -> None:
        """What was answered asks no more."""
        self._tell_waiting(event.room)

    def _tell_waiting(self, room: Room | None) -> None:
        """Say how to answer what waits, and no longer."""
        if self._feed is not None and room is not None and self._log.is_attached:
            ids = {need.id for need in room.needs if need.kind in ANSWERED}
            if entries := self._feed.waiting(ids):
                self._put(entries)

    def on_away(self, event: Away) -> None:
        """Load what could not be loaded."""
        if not event.away and self.display and self._feed is None:
            self._start()

    @work(exclusive=True, group="again")
    async def _again(self) -> None:
        """A receipt may have come while nobody read."""
        try:
            await self._look_again()
        except PostroomError as error:
            self.post_message(Said(str(error), bad=True))

    def _hear(self, records: Iterable[Any]) -> None:
        """Remember questions, and what is to be marked as seen."""
        assert self._feed is not None  # noqa: S101 (loaded)
        source = self._source
        for one in records:
            if "to" not in one:
                continue
            if self._feed.is_unread(one):
                self._unseen[one["id"]] = one
            if isinstance(source, AgentTarget):
                if one["to"]["uid"] == self._feed.me["uid"]:
                    source.heard(one)
                elif one["reply_to"] == source.question:
                    source.question = ""
        self._tell()

    # ── seen ──

    @property
    def _watched(self) -> bool:
        """Whether the person has the end of it before their eyes."""
        return self._looked_at and (self._log.follows or self._log.is_vertical_scroll_end)

    @property
    def _looked_at(self) -> bool:
        return (
            self.display
            and self.is_on_screen
            and self.region.area > 0
            and self.screen is self.app.screen
            and self.app.app_focus
        )

    def on_show(self) -> None:
        """Its pane is shown."""
        self._see()

    def see(self) -> None:
        """The person may be looking again."""
        self._see()

    def _see(self, *, at_end: bool = True) -> None:
        if self._unseen and self.is_attached and (self._watched if at_end else self._looked_at):
            self._mark_seen()

    @work(exclusive=True, group="seen")
    async def _mark_seen(self) -> None:
        client = self.port.client
        try:
            for message_id in list(self._unseen):
                await client.mark_seen(message_id)
                self._unseen.pop(message_id, None)
        except PostroomError as error:
            # It stays unread, and is marked once it is looked at again.
            self.post_message(Said(str(error), bad=True))
        self.port.renew()

    # ── history ──

    @on(RowLog.AtTop)
    def _at_top(self, event: RowLog.AtTop) -> None:
        event.stop()
        if self._feed is not None and not self._at_beginning:
            self._read_earlier()

    @work(exclusive=True, group="earlier")
    async def _read_earlier(self) -> None:
        try:
            await self._earlier()
        except PostroomError as error:
            self.post_message(Said(str(error), bad=True))

    async def _earlier(self) -> None:
        source, feed = self._source, self._feed
        assert source is not None and feed is not None  # noqa: S101, PT018 (loaded)
        records = await source.earlier(PAGE)
        self._unseen |= {one["id"]: one for one in records if feed.is_unread(one)}
        entries, replaced = feed.older(records)
        self._put(replaced)
        self._log.put_before([block_of(entry, feed.me) for entry in entries])
        if not source.has_earlier:
            self._begin()
        self._see(at_end=False)  # the person reads up here
        self._read_answers()

    def _begin(self) -> None:
        if self._at_beginning or self._feed is None:
            return
        self._at_beginning = True
        what = "the feed" if self.target.is_project else "the conversation"
        mark = self._feed.beginning(f"the beginning of {what}")
        self._log.put_before([block_of(mark, self._feed.me)])

    # ── answers ──

    def _read_answers(self) -> None:
        feed = self._feed
        if feed is not None and feed.unanswered and self.is_running:
            self.run_worker(partial(self._show_answers, feed), exclusive=True, group="answers")

    async def _show_answers(self, feed: Timeline) -> None:
        """Fetch and show the results of the tasks that have ended, the newest first."""
        client = self.port.client
        while task := feed.unanswered:
            try:
                found = await client.task(task)
            except NotFound:
                found = None  # it is pruned: its request is all that is left
            except PostroomError:
                return  # it is asked for again when something else comes
            self._put(feed.answer(task, found))

    def open_entry(self, key: str = "") -> bool:
        """Open what an entry is about , by default that under the cursor; False for nothing."""
        key = key or self._log.current
        kind, _, task = key.partition(" ")
        need = self._feed.needs.get(key) if self._feed is not None else None
        if kind == "task":
            acts.open_task(self.port, task)
        elif need:
            self.post_message(NeedChosen(need))
        return kind == "task" or bool(need)

    def on_row_log_opened(self, event: RowLog.Opened) -> None:
        """The same by a double click."""
        event.stop()
        self.open_entry(event.key)

    async def send(self, text: str, parts: Sequence[Part] = ()) -> str:
        """Send a line; the same line again after an error is the same message. Returns as `Talk.send`.

        Raises:
            PostroomError: it was not sent, or nobody knows.
        """
        with contextlib.suppress(TimeoutError):  # who is quick types before the history is there
            async with asyncio.timeout(PATIENCE):
                await self._begun.wait()
        source, feed = self._source, self._feed
        if source is None or feed is None:
            raise PostroomError("nothing was sent: the post room cannot be reached now")
        question = source.question if isinstance(source, AgentTarget) else ""
        attempt = self._attempts.begin(text, parts, question)
        line, entries = feed.sending(text, len(parts))
        self._put(entries)

        more = {"answers": attempt.answers} if isinstance(source, AgentTarget) else {}
        try:
            record = await source.send(text, parts, key=attempt.key, **more)
        except PostroomError as error:
            self._attempts.failed(attempt, error)
            self._put(feed.unsent(line))
            raise
        self._attempts.sent(attempt)
        self._put(feed.sent(line, record))
        self._tell()
        return one_line(record.get("note", ""), 200)

    def _tell(self) -> None:
        """What is shown above and below the lines."""
        if not self._log.is_running:
            return
        what = "" if self.target.is_project else "conversation with "
        loading = LOADING if self._feed is None else ""
        state = " · the post room is away" if self._away else loading and f" · {loading}"
        self._head.update(f"{what}{one_line(str(self.target), 80)}{state}")
        source = self._source
        question = source.question if isinstance(source, AgentTarget) else ""
        below = self._answers
        below.display = bool(question)
        if question and self._feed is not None:
            said = self._feed.words_of(question)
            below.update(f"your next line answers {one_line(str(self.target), 40)}: {said}")
