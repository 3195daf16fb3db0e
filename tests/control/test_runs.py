"""A fault of one worker's start or end concerns that worker alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from postroom.errors import EnvironmentFault, StateUnwritable
from postroom.gateway.port import GatewayProvider
from postroom.protocol.alerts import Alert
from postroom.sandbox.port import ExitStatus, SandboxHandle
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.workers.run import Run
from postroom.workers.runs import Runs
from tests.rig import new_uid

pytestmark = pytest.mark.anyio

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
        self.runs = Runs(
            Database(None),
            cast("GatewayProvider", self.doors),
            self.alert,
            tasks,
            lambda: None,
            1.0,
        )

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


@pytest.mark.requirement("worker-fault-contained")
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


@pytest.mark.requirement("worker-fault-contained")
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


@pytest.mark.requirement("worker-fault-contained")
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
