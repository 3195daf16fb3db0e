"""Runs of a text program, without the rest of a sidecar."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from postroom.protocol.verbs import Complete
from postroom.sidecar import per_request as module
from postroom.sidecar.adapters import IncomingTask, Said, Sender
from postroom.sidecar.agent import AgentGone
from postroom.sidecar.bus import alert_raiser
from postroom.sidecar.config import AgentConfig
from postroom.sidecar.keys import Owner
from postroom.sidecar.per_request import RequestProgram
from postroom.sidecar.session import AgentRun
from postroom.sidecar.status import StatusReporter
from tests.sidecar.test_outgoing import OWN, Log

pytestmark = pytest.mark.anyio

TASK = IncomingTask("1" * 32, "c", Sender("a" * 32, "alice", "worker"), "x")


class Host:
    """Keeps what the program said."""

    def __init__(self) -> None:
        self.said: list[Said] = []

    def owner_of(self, said: Said) -> Owner:
        return Owner(type(said).__name__)

    async def act(self, session: AgentRun, said: Said, owner: Owner) -> None:
        self.said.append(said)

    def at_work(self, task: str) -> bool:
        return task == TASK.id

    async def gone(self) -> None:
        pass

    async def give_back(self, message_id: str) -> None:
        raise AssertionError(f"{message_id} was not held")


@asynccontextmanager
async def running(host: Host, *command: str) -> AsyncGenerator[RequestProgram]:
    log = Log()
    status, raise_alert = StatusReporter(log, OWN, lambda: 0), alert_raiser(log, OWN)
    config, env = AgentConfig(command), {"PATH": os.environ["PATH"]}
    programs = RequestProgram(config, env=env, cwd="", status=status, raise_alert=raise_alert)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(programs.run(host, 0.0))
        yield programs
        programs.stop()


async def test_a_run_that_goes_on_for_long_after_its_task_is_ended(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "LINGER", 0.05)
    host = Host()
    async with running(host, "sleep", "600") as programs:
        run = await programs.running()
        await run.hand_over(TASK)
        await run.let_go()

    assert run.how_ended == "killed by signal 9"
    assert host.said == []


async def test_a_run_that_is_ended_before_it_began_never_begins():
    host = Host()
    async with running(host, "echo", "begun") as programs:
        run = await programs.running()
        run.send_signal(signal.SIGINT)
        with pytest.raises(BrokenPipeError):
            await run.hand_over(TASK)
        after = await programs.running()
        await after.hand_over(TASK)
        await after.ended.wait()

    assert run.how_ended == "it was ended before it began"
    assert [action for action in host.said if isinstance(action, Complete)] == [Complete(TASK.id)]


async def test_a_run_waits_for_the_one_before_and_none_begins_once_the_worker_is_stopped():
    host = Host()
    async with running(host, "sleep", "600") as programs:
        first, second = await programs.running(), await programs.running()
        await first.hand_over(TASK)
        waiting = asyncio.create_task(second.hand_over(TASK))
        programs.stop()
        with pytest.raises(BrokenPipeError):
            await waiting
        assert first.ended.is_set()
        with pytest.raises(AgentGone):
            await programs.running()

    assert host.said == []
