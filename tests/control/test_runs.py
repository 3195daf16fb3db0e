"""A fault of one worker's start or end concerns that worker alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postroom.errors import EnvironmentFault, StateUnwritable
from postroom.protocol.alerts import Alert
from postroom.protocol.presence import OUT_OF_MEMORY, WorkerState
from postroom.sandbox.port import ExitStatus, Limits, SandboxHandle
from postroom.settings import Settings
from postroom.sidecar import main as sidecar
from postroom.sidecar.config import ENVIRONMENT
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.workers import RUNNING, STOPPED
from postroom.workers.parts import WorkerParts
from postroom.workers.runs import Run, Runs, exceeded
from postroom.workers.status import state_of
from tests.rig import new_uid

pytestmark = pytest.mark.anyio

MEMORY = Limits(memory=64 << 20)

PATIENCE = 10.0


class Failing:
    """A sandbox whose end cannot be seen, for a reason that nobody foresaw."""

    pid = 4711

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.ended = asyncio.Event()

    async def wait(self) -> ExitStatus:
        await self.ended.wait()
        if self.error is not None:
            raise self.error
        return ExitStatus(0)

    async def stop(self, _grace: float) -> ExitStatus:
        self.ended.set()
        return await self.wait()


class Doors:
    def __init__(self) -> None:
        self.closed: list[str] = []

    async def close_door(self, uid: str) -> None:
        self.closed.append(uid)


class Watch:
    """`Runs` with what it told."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.alerts: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.doors = Doors()
        parts = SimpleNamespace(
            settings=Settings(stop_grace=1.0),
            database=Database(None),
            gateway=self.doors,
            alerts=SimpleNamespace(raise_alert=self.alert),
            tasks=tasks,
            changed=lambda: None,
        )
        self.runs = Runs(cast("WorkerParts", parts))

    async def alert(self, alert: Alert) -> None:
        self.alerts.put_nowait((alert.kind, f"{alert.who}: {alert.text}"))

    def begin(self, nick: str, error: Exception | None = None) -> tuple[Agent, Failing]:
        agent = Agent(new_uid(), "default", nick, "worker", 0.0)
        handle = Failing(error)
        run = Run(cast("SandboxHandle", handle), "none", 0.0, nick, cast("Any", {}), "r", False)
        self.runs.begin(agent, run)
        return agent, handle

    async def told(self) -> tuple[str, str]:
        return await asyncio.wait_for(self.alerts.get(), PATIENCE)


@asynccontextmanager
async def watch() -> AsyncGenerator[Watch]:
    async with asyncio.TaskGroup() as tasks:
        made = Watch(tasks)
        yield made
        await made.runs.close()


@pytest.mark.requirement("worker-restart-reloads")
async def test_an_end_that_cannot_be_seen_is_told_and_the_others_run_on() -> None:
    async with watch() as made:
        agent, handle = made.begin("one", ValueError("unforeseen"))
        other, _ = made.begin("two")

        handle.ended.set()

        kind, text = await made.told()
        assert (kind, f"{agent.uid}: ended: ValueError: unforeseen" in text) == (
            "worker-ended",
            True,
        )
        run, second = made.runs.get(agent.uid), made.runs.get(other.uid)
        assert run is not None
        assert not run.running
        assert second is not None
        assert second.running


@pytest.mark.requirement("worker-restart-reloads")
async def test_a_stop_that_fails_ends_the_worker_and_closes_its_door() -> None:
    async with watch() as made:
        agent, _ = made.begin("one", SimpleFault())

        await made.runs.end(agent.uid)

        run = made.runs.get(agent.uid)
        assert run is not None
        assert not run.running
        assert made.doors.closed == [agent.uid]


async def test_a_worker_whose_processes_do_not_end_is_not_taken_for_ended() -> None:
    async with watch() as made:
        agent, handle = made.begin("one")
        handle.stop = _never

        with pytest.raises(EnvironmentFault, match="do not end"):
            await made.runs.end(agent.uid)

        run = made.runs.get(agent.uid)
        assert run is not None
        assert run.running
        handle.ended.set()


@pytest.mark.requirement("worker-restart-reloads")
async def test_a_start_that_failed_is_kept_in_words_until_the_next_one() -> None:
    async with watch() as made:
        agent = Agent(new_uid(), "default", "one", "worker", 0.0)

        await made.runs.fail(agent, StateUnwritable("the disk is full"))

        assert made.runs.failure(agent.uid) == "the disk is full"
        assert await made.told() == (
            "worker-not-started",
            f"{agent.uid}: was not started: the disk is full",
        )


async def _never(_grace: float) -> ExitStatus:
    raise TimeoutError


class SimpleFault(Exception):
    """Of no kind that anybody knows."""


@pytest.mark.parametrize(
    "ended, limits, said",
    [
        (
            ExitStatus(137, exceeded="time limit of 1 s exceeded"),
            MEMORY,
            "time limit of 1 s exceeded",
        ),
        (ExitStatus(OUT_OF_MEMORY), MEMORY, "memory limit of 64 MiB exceeded"),
        (ExitStatus(OUT_OF_MEMORY), Limits(), ""),
        (ExitStatus(1), MEMORY, ""),
    ],
)
def test_the_limit_is_told_by_the_guard_or_by_the_sidecar_itself(
    ended: ExitStatus, limits: Limits, said: str
):
    assert exceeded(ended, limits) == said


@pytest.mark.parametrize(
    "failure", [MemoryError(), ExceptionGroup("", [ValueError(), MemoryError()])]
)
def test_a_sidecar_without_memory_says_so_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
):
    def load(_: object) -> None:
        raise failure

    monkeypatch.setenv(ENVIRONMENT, "/nowhere")
    monkeypatch.setattr(sidecar, "load", load)

    assert sidecar.main() == OUT_OF_MEMORY


def test_a_worker_that_a_former_post_room_ended_for_a_limit_has_failed_until_somebody_acts():
    why = "time limit of 1 s exceeded"

    assert state_of(RUNNING, None, None, time.time(), why) == (WorkerState.FAILED, why)
    assert state_of(STOPPED, None, None, time.time(), why) == (WorkerState.STOPPED, "")
