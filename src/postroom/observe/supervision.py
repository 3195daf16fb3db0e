"""One supervisor under all background work of the control plane.

    background.supervise("retention", retention.run)

Work that fails is begun again after a pause, for ever; only what is declared `fatal` ends what it serves. It says
`well()` after each round that succeeded: until then it counts as failing. People are told once of work that fails for
longer than `PATIENCE`, and once when it succeeds again. All of it is in `failing` and `loops`, for status and metrics.

Work on many things at a time does what concerns one of them within `guarded`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

from postroom.errors import PostroomError, leaves
from postroom.observe import get_logger
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom_a2a.retry import RetryPolicy
from postroom_a2a.times import format_time

log = get_logger(__name__)

RETRY = RetryPolicy(base=0.5, cap=10.0)
"""The pauses before failed work is begun again."""

SELDOM = RetryPolicy(base=60.0, cap=3600.0)
"""Those of work that costs much."""

PATIENCE = 10.0
"""Seconds that work fails before people are told: a restart of the database takes less."""

FAILING = "background-failing"
"""Kind of the alert; its `about` is the name of the work."""

TELLING = "telling"
"""Name of the work that tells people."""

Work = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Loop:
    """Background work.

    Attributes:
        kind: of its alert.
        failures: how often in a row; 0 while it is well.
        total: how often since the start.
        since: instant of the first failure in a row.
        told: people were told that it fails.
    """

    name: str
    kind: str
    org: str
    news: asyncio.Event
    failures: int = 0
    total: int = 0
    since: float = 0.0
    error: str = ""
    told: bool = False
    _late_at: float = field(default=0.0, repr=False)

    def well(self) -> None:
        """A round has succeeded."""
        if self.failures:
            log.info("%s%s goes on", self.name, self._of)
            self.failures, self.error = 0, ""
            self.news.set()

    def fail(self, error: Exception) -> None:
        """It has failed, and is tried again."""
        said = str(error) if isinstance(error, PostroomError) else repr(error)
        if said != self.error:
            log.warning("%s%s waits: %s", self.name, self._of, said, exc_info=unforeseen(error))
        if not self.failures:
            self.since, self._late_at = time.time(), time.monotonic() + PATIENCE
            self.news.set()
        self.failures, self.total, self.error = self.failures + 1, self.total + 1, said

    @property
    def _of(self) -> str:
        return f" of org {self.org}" if self.org else ""

    @property
    def early(self) -> float:
        """Seconds until people are told that it fails; 0 for now."""
        return max(0.0, self._late_at - time.monotonic())

    @property
    def alert(self) -> Alert:
        """What people are told now: that it fails, or that this is over."""
        about = self.name if self.kind == FAILING else ""
        text = (
            f"background work of the post room fails and is tried again: {self.name}: {self.error}"
        )
        return Alert(self.kind, text if self.failures else "", about=about)


_current: ContextVar[Loop | None] = ContextVar("background work", default=None)


def well() -> None:
    """Say that the present background work has done a round; without a supervisor nothing."""
    if (loop := _current.get()) is not None:
        loop.well()


def failing(error: Exception) -> None:
    """Say that the present background work waits for the end of a fault by itself."""
    if (loop := _current.get()) is not None:
        loop.fail(error)


@dataclass(slots=True)
class Guard:
    """What guarded work has failed with."""

    error: Exception | None = None


@contextlib.contextmanager
def guarded(failure: str, *, fatal: tuple[type[Exception], ...] = ()) -> Generator[Guard]:
    """Work on one of many things: what goes wrong with it is logged as `failure`, and ends no other's.

    Args:
        fatal: errors that are raised all the same.
    """
    guard = Guard()
    try:
        yield guard
    except Exception as error:
        if isinstance(error, fatal):
            raise
        guard.error = error
        log.warning("%s: %s", failure, error, exc_info=unforeseen(error))


def unforeseen(error: Exception) -> Exception | None:
    """The error if its traceback belongs into the log."""
    return None if isinstance(error, PostroomError) else error


class Supervisor:
    """The background work of an organisation, or of none; what is fatal ends `group`.

    Tasks that others begin in `group` are waited for at the end; supervised ones are cancelled.
    """

    def __init__(self, group: asyncio.TaskGroup, org: str = "") -> None:
        self.group = group
        self._org = org
        self.loops: dict[str, Loop] = {}
        self._news = asyncio.Event()
        self._left = False
        self._tasks: list[asyncio.Task[None]] = []

    def supervise(
        self,
        name: str,
        work: Work,
        *,
        fatal: tuple[type[Exception], ...] = (),
        every: float = 0.0,
        retry: RetryPolicy | None = None,
        kind: str = FAILING,
    ) -> None:
        """Keep `work` going until `cancel`, or until it returns.

        Args:
            work: runs until cancelled, and says `well()` when it succeeds; begun anew, it catches up by itself.
            fatal: errors that end `group`.
            every: `work` is one round, done every so many seconds.
            retry: the pauses after failures, `RETRY` if not given.
            kind: of the alert that it fails; where it has one of its own, an earlier process may have raised it.
        """
        if name in self.loops:
            raise ValueError(f"there is background work {name!r} already")
        loop = self.loops[name] = Loop(name, kind, self._org, self._news, told=kind != FAILING)
        keeping = self._keep(loop, work, fatal, every, retry or RETRY)
        self._tasks.append(self.group.create_task(keeping, name=name))

    def tell_by(self, tell: RaiseAlert, *, left: bool = False) -> None:
        """Tell people by `tell` from now on; what it raises is tried again.

        Args:
            left: end what an earlier process has told them.
        """
        self._left = left
        self.supervise(TELLING, partial(self._tell, tell))

    @property
    def failing(self) -> list[shapes.Failing]:
        """What fails now."""
        return [
            {
                "name": loop.name,
                "error": loop.error,
                "since": format_time(loop.since),
                "failures": loop.failures,
            }
            for loop in self.loops.values()
            if loop.failures
        ]

    def cancel(self) -> None:
        """End all of it."""
        for task in self._tasks:
            task.cancel()

    async def _keep(
        self,
        loop: Loop,
        work: Work,
        fatal: tuple[type[Exception], ...],
        every: float,
        retry: RetryPolicy,
    ) -> None:
        _current.set(loop)
        while True:
            if every and not loop.failures:
                await asyncio.sleep(every * random.uniform(0.9, 1.1))  # noqa: S311 (jitter)
            try:
                await work()
            except Exception as error:
                if any(isinstance(each, fatal) for each in leaves(error)):
                    raise
                loop.fail(error)
            else:
                loop.well()
                if every:
                    continue
                return
            await asyncio.sleep(retry.delay(loop.failures))

    async def _tell(self, tell: RaiseAlert) -> None:
        if self._left:
            await tell(Alert(FAILING, ""))
            self._left = False
        while True:
            self._news.clear()
            waits = 60.0
            # First what fails: to end an alert takes the database, too.
            for loop in sorted(self.loops.values(), key=lambda each: not each.failures):
                if loop.failures and loop.early:
                    waits = min(waits, loop.early)
                elif loop.told != bool(loop.failures) and loop.name != TELLING:
                    failing = bool(loop.failures)
                    await tell(loop.alert)
                    loop.told = failing
            well()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(waits):
                    await self._news.wait()


@contextlib.asynccontextmanager
async def supervisor(org: str = "") -> AsyncGenerator[Supervisor]:
    """A supervisor for as long as the context lasts."""
    async with asyncio.TaskGroup() as group:
        made = Supervisor(group, org)
        try:
            yield made
        finally:
            made.cancel()
