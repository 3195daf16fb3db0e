"""One task at an agent of other people, from its request to its end: sent once, followed, answered, canceled.

What is known of the other side is in the task's own records here, so a process that is killed at any point goes on with
the next one: a request that may have gone out goes out again with the same `messageId`. What it needs of the post room
is its `Desk`; `Patience` says how long it waits for the other side.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from postroom.errors import (
    CallerError,
    Conflict,
    EnvironmentFault,
    NoResponders,
    NotFound,
    PeerError,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom.observe import get_logger, tracing
from postroom.protocol.content import Content
from postroom.protocol.limits import MAX_DETAIL
from postroom.protocol.traces import trace_of
from postroom.remote.agents import RemoteAgent
from postroom.remote.said import (
    ArtifactReport,
    Place,
    Report,
    StatusReport,
    answers_in,
    has_message,
    reports_of,
    state_in,
    task_of,
)
from postroom.store.ports import TaskRow
from postroom_a2a.http.client import A2AClient
from postroom_a2a.http.client_wire import code_of
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.retry import Backoff
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task
from postroom_a2a.text import one_line

log = get_logger(__name__)

EVENTS_A_SECOND = 50.0
BURST = 200
"""Events and changes that one task may bring in a second, and in a burst: most are a record of the log."""

SEND_PATIENCE = 30.0
"""Seconds that a change here waits for a message that is on its way there."""

SEND_TIMEOUT = 300.0
"""Seconds for an answer to a message: some servers answer only when the task has ended."""

LISTED = 50
"""Tasks of the other side among which a request is looked for that may have gone out before a crash."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds.

    Attributes:
        away: that the other side may be away before the task fails.
        retry, longest_retry: between two tries, at most.
        cancel: in which a cancel is tried at the other side; the end of the task here waits for it.
        first, longest: between two looks at a task that is followed by looking; `asking` while it asks something.
    """

    away: float = 600.0
    cancel: float = 10.0
    retry: float = 0.5
    longest_retry: float = 30.0
    first: float = 1.0
    longest: float = 30.0
    asking: float = 120.0


class Desk(Protocol):
    """What a task needs of the post room."""

    patience: Patience

    async def row(self, task: str) -> TaskRow | None:
        """The task as it is here."""

    async def status(
        self,
        agent: str,
        task: str,
        state: TaskState,
        said: Content | None,
        metadata: dict[str, Any],
    ) -> None:
        """Report a state, as `TaskReports.status`."""

    async def artifact(
        self, agent: str, task: str, artifact: dict[str, Any], append: bool, last: bool
    ) -> None:
        """Report an artifact, as `TaskReports.artifact`."""

    async def outgoing(self, agent: str, part: dict[str, Any]) -> dict[str, Any]:
        """A part as the other side can read it: content instead of the name of a blob. Raises InvalidInput."""

    def reached(self, agent: str, *, there: bool) -> None:
        """The other side answers, or does not."""


class Ended(Exception):
    """The task has ended here."""


class RemoteTask:
    """Works on one task until it has ended here and there.

    Args:
        resumed: it was there before this process, so its request, or an answer, may have gone out.

    Attributes:
        how: how it is followed, for people.
        asks: it waits for an answer, and costs nothing.
    """

    def __init__(
        self,
        desk: Desk,
        remote: RemoteAgent,
        client: A2AClient,
        task: str,
        *,
        resumed: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.task = task
        self.how = ""
        self.asks = False
        self._desk = desk
        self._remote = remote
        self._client = client
        self._unsure = resumed  # whether what is sent next may be there already
        self._clock = clock
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._contact = clock()
        self._due = 0.0

    def wake(self) -> None:
        """Something has happened to the task here: it has ended, or has an answer."""
        self._news.set()

    async def run(self) -> None:
        """Work on it."""
        row, ours = await self._now()
        with tracing.within(trace_of(ours["history"][0])):
            await self._to_its_end(row)

    async def _to_its_end(self, row: TaskRow) -> None:
        why = ""
        try:
            async with asyncio.timeout(
                max(0.0, row.created_at + self._remote.deadline - self._clock())
            ):
                await self._work()
        except Ended:
            pass
        except TimeoutError:
            why = f"has not ended within its deadline of {self._remote.deadline:g} s"
        except PostroomError as error:
            why = one_line(error.message, MAX_DETAIL)
        except Exception:
            # A stranger's words brought it about, and must end no other task.
            log.exception("task %s at %s", self.task, self._remote.url)
            why = "what it says cannot be worked with; the log of the post room has the error"
        row, ours = await self._now()
        if why or (row.final and row.runner != self._remote.uid):
            await self.cancel_there(ours)
        if why and not row.final:
            await self._fail(why)

    async def _work(self) -> None:
        while True:
            self._news.clear()
            row, _ = await self._now()
            if row.final:
                return
            self.asks = TaskState(row.state).interrupted
            step = asyncio.create_task(self._step())
            news = asyncio.create_task(self._news.wait())
            try:
                await asyncio.wait({step, news}, return_when=asyncio.FIRST_COMPLETED)
                if not step.done():
                    # What is being sent has perhaps begun a task there: hear which before anything else.
                    sent = asyncio.create_task(self._idle.wait())
                    await asyncio.wait(
                        {step, sent}, timeout=SEND_PATIENCE, return_when=asyncio.FIRST_COMPLETED
                    )
                    sent.cancel()
            finally:
                for each in (step, news):
                    each.cancel()
                await asyncio.wait({step, news})
            if not step.cancelled():
                step.result()

    async def _step(self) -> None:
        """Send what is to be sent, and follow until the task has ended or asks; through outages."""
        backoff = Backoff(self._desk.patience.retry, self._desk.patience.longest_retry)
        while True:
            try:
                await self._attempt()
                return
            except (PeerError, Refused) as error:
                away = self._clock() - self._contact
                if isinstance(error, ProtocolViolation) or (
                    code_of(error) and not isinstance(error, Refused)
                ):
                    raise
                if away > self._desk.patience.away:
                    text = f"could not be reached for {away:.0f} s: {error.message}"
                    raise PeerError(text) from error
                self.how = f"cannot be reached: {one_line(error.message, 120)}"
                self._desk.reached(self._remote.uid, there=False)
            await asyncio.sleep(backoff.next())

    async def _attempt(self) -> None:
        _, ours = await self._now()
        place = Place.of(ours)
        if not place.task and self._unsure:
            place = await self._sent_before()
        if not place.task:
            await self._send(await self._message(ours["history"][0], 0), place)
        elif len(answers := answers_in(ours)) > place.answers:
            sent = replace(place, answers=place.answers + 1)
            if self._unsure and (shown := await self._answered_before(sent)) is not None:
                await self._take({"task": shown}, sent, new=True)
                return
            answer = await self._message(answers[place.answers], sent.answers)
            told = {"taskId": place.task} | ({"contextId": place.context} if place.context else {})
            await self._send(answer | told, sent)
        elif self._client.streams and not self.asks:
            self.how = "followed by stream"
            await self._read(self._client.subscribe(place.task), place)
        else:
            await self._poll(place)

    async def _send(self, message: Message, place: Place) -> None:
        """Send a message; `place` is what is known once the other side has it."""
        self._idle.clear()
        self.how = "is being sent"
        try:
            if self._client.streams:
                self.how = "followed by stream"
                await self._read(self._client.stream(message), place, new=True)
                return
            await self._take(
                await self._client.send(message, wait=False, timeout=SEND_TIMEOUT), place, new=True
            )
        except PeerError as error:
            self._unsure |= not isinstance(error, NoResponders)
            raise
        finally:
            self._idle.set()

    async def _read(self, events: Any, place: Place, *, new: bool = False) -> None:
        async with aclosing(events) as found:
            async for event in found:
                if await self._take(await self._whole(event, place), place, new=new):
                    return
                new = False

    async def _whole(self, event: Event, place: Place) -> Event:
        """The event, or the whole task where a stream ends without artifacts: some servers show theirs only there."""
        last = event.get("statusUpdate") or event.get("task") or {}
        if not last or last.get("artifacts") or state_in(last) is not TaskState.COMPLETED:
            return event
        _, ours = await self._now()
        there = place.task or Place.of(ours).task or last.get("id")
        if not there or ours.get("artifacts"):
            return event
        try:
            task = await self._client.get(there, history=0)
            return {"task": task} if state_in(task) is TaskState.COMPLETED else event
        except PostroomError as error:
            log.info("task %s at %s is not shown whole: %s", self.task, self._remote.url, error)
            return event

    async def _poll(self, place: Place) -> None:
        patience = self._desk.patience
        longest = patience.asking if self.asks else patience.longest
        pause = patience.first
        while True:
            self.how = f"followed by poll every {pause:g} s"
            event = {"task": await self._client.get(place.task, history=0)}
            if await self._take(event, place):
                return
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 (spreads polls, no secret)
            pause = min(longest, pause * 1.5)

    # ── what comes back ──────────────────────────────────────────────────────────────────────────────────

    async def _take(self, event: Event, place: Place, *, new: bool = False) -> bool:
        """Report what an event says; returns whether nothing follows it for now.

        Args:
            new: it answers a message, which the other side has from now on.
        """
        self._contact = self._clock()
        self._desk.reached(self._remote.uid, there=True)
        if new:
            await self._keep(event, place)
            self._unsure = False
            self._idle.set()
        await self._pace()
        _, ours = await self._now()
        for number, report in enumerate(reports_of(event, ours)):
            if number:
                await self._pace()
            await self._report(report, ours)
            if isinstance(report, StatusReport) and (
                report.state.terminal or report.state.interrupted
            ):
                return True
        return False

    async def _keep(self, event: Event, place: Place) -> None:
        """Store where the task is, before anything else of it."""
        if "message" in event:
            return
        held = event.get("task") or event.get("statusUpdate") or event.get("artifactUpdate") or {}
        task = task_of(event)
        if not task:
            raise ProtocolViolation("the agent names no id of its task")
        context = held.get("contextId")
        context = context if isinstance(context, str) else ""
        known = replace(place, task=place.task or task, context=place.context or context)
        await self._own(
            lambda: self._desk.status(
                self._remote.uid, self.task, TaskState.WORKING, None, known.metadata
            )
        )

    async def _report(self, report: Report, ours: Task) -> None:
        uid = self._remote.uid
        if isinstance(report, ArtifactReport):
            if TaskState.from_a2a(ours["status"]["state"]).interrupted:  # it goes on by itself
                await self._own(
                    lambda: self._desk.status(uid, self.task, TaskState.WORKING, None, {})
                )
            await self._own(
                lambda: self._desk.artifact(
                    uid, self.task, report.artifact, report.append, report.last
                )
            )
            return
        self.asks = report.state.interrupted
        place = Place.of(ours)
        about = replace(place, asked=report.mark).metadata if report.state.interrupted else {}
        await self._own(lambda: self._desk.status(uid, self.task, report.state, report.said, about))

    async def _fail(self, why: str) -> None:
        said = Content.of_text(why)
        with suppress(Ended):
            await self._own(
                lambda: self._desk.status(self._remote.uid, self.task, TaskState.FAILED, said, {})
            )

    async def _own(self, report: Callable[[], Awaitable[None]]) -> None:
        """Report, again and again while the post room itself cannot store it.

        Raises:
            Ended: the task has ended here.
            CallerError: it is too large, or not valid.
        """
        try:
            await self._surely(report)
        except (Conflict, NotFound) as error:
            row, _ = await self._now()
            if row.final:
                raise Ended from error
            raise CallerError(f"its report does not fit the task: {error.message}") from error

    async def _surely(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the post room answers, asked again and again while its bus or database is at fault: the other side
        has no part in that, so it neither ends the task nor counts as away.
        """
        backoff = Backoff(self._desk.patience.retry, self._desk.patience.longest_retry)
        while True:
            try:
                return await call()
            except (Refused, RequestTimeout, EnvironmentFault) as error:
                log.warning("task %s waits for the post room: %s", self.task, error)
            await asyncio.sleep(backoff.next())

    async def _pace(self) -> None:
        """Wait where the other side says more than the log shall hold."""
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - BURST / EVENTS_A_SECOND) + 1 / EVENTS_A_SECOND
        if self._due > now:
            await asyncio.sleep(self._due - now)

    async def _now(self) -> tuple[TaskRow, Task]:
        row = await self._surely(lambda: self._desk.row(self.task))
        if row is None:
            raise Ended
        return row, json.loads(row.snapshot)

    # ── what goes out ────────────────────────────────────────────────────────────────────────────────────

    async def _message(self, ours: Message, number: int) -> Message:
        """A message of the task as it goes out; the same one again has the same id."""
        parts = [
            await self._surely(partial(self._desk.outgoing, self._remote.uid, part))
            for part in ours["parts"]
        ]
        return {"messageId": self._named(number), "role": ROLE_USER, "parts": parts}

    def _named(self, number: int) -> str:
        return hashlib.sha256(f"{self.task}/{number}".encode()).hexdigest()[:32]

    async def _sent_before(self) -> Place:
        """Where the request is that may have gone out: not every server knows a `messageId` again."""
        named = self._named(0)
        try:
            page = await self._client.list(pageSize=LISTED, historyLength=LISTED)
        except NoResponders:
            raise
        except (CallerError, PeerError):
            page = {"tasks": []}  # it lists nothing
        self._unsure = False
        for task in page["tasks"]:
            if has_message(task, named):
                place = Place()
                await self._keep({"task": task}, place)
                return Place.of((await self._now())[1])
        return Place()

    async def _answered_before(self, place: Place) -> Task | None:
        """The task there if it has the last answer of `place`, which most servers would refuse a second time."""
        shown = await self._client.get(place.task, history=LISTED)
        if state_in(shown).interrupted and not has_message(shown, self._named(place.answers)):
            return None
        return shown

    async def cancel_there(self, ours: Task | None = None) -> None:
        """End the task at the other side, if it is known there; what it says to that counts no more."""
        ours = ours or (await self._now())[1]
        place, backoff = Place.of(ours), Backoff(0.2, 10.0)
        if not place.task:
            return
        try:
            async with asyncio.timeout(self._desk.patience.cancel):
                while True:
                    try:
                        await self._client.cancel(place.task)
                        return
                    except (PeerError, Refused) as error:
                        if isinstance(error, ProtocolViolation) or code_of(error):
                            return
                    await asyncio.sleep(backoff.next())
        except (CallerError, TimeoutError) as error:
            log.info("task %s is not canceled at %s: %s", self.task, self._remote.url, error)
