from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from postroom.protocol.presence import WorkerState
from postroom.sidecar import session as session_module
from postroom.sidecar.adapters import Incoming, JsonLines, Sender
from postroom.sidecar.process import AgentProcess, Exit
from postroom.sidecar.session import QUEUE, AgentSession
from postroom.sidecar.status import StatusReporter
from tests.sidecar.test_outgoing import OWN, Log

pytestmark = pytest.mark.anyio

MESSAGE = Incoming("m1", Sender("b" * 32, "bob", "worker"), "@reader", "hello")


async def program(code: str) -> AgentProcess:
    return await AgentProcess.start((sys.executable, "-c", code), {}, "")


async def until(condition: object, expected: object) -> None:
    """Wait until `condition()` gives what is expected."""
    assert callable(condition)
    async with asyncio.timeout(10):
        while condition() != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.requirement("sidecar-message-handed")
async def test_an_agent_that_leaves_its_input_unread_is_stalled_until_it_reads(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(session_module, "STALLED_AFTER", 0.05)
    process = await program("input(); input()")
    process.send_signal(signal.SIGSTOP)
    status = StatusReporter(Log(), OWN, lambda: 1)
    status.running()
    session = AgentSession(process, JsonLines(), status)
    try:
        handing = asyncio.create_task(session.hand_over(MESSAGE))
        await until(lambda: status.presence().state, WorkerState.STALLED)
        assert not handing.done()

        process.send_signal(signal.SIGCONT)
        assert await asyncio.wait_for(handing, 10)
        assert status.presence().state is WorkerState.WORKING
    finally:
        process.close()


async def test_receipts_for_an_agent_that_does_not_read_are_bounded():
    process = await program("import time; time.sleep(60)")
    session = AgentSession(process, JsonLines(), StatusReporter(Log(), OWN, lambda: 0))
    try:
        for n in range(3 * QUEUE):
            session.tell({"type": "receipt", "id": str(n)})
        assert len(session._queue) == QUEUE
    finally:
        process.close()


@pytest.mark.parametrize(
    "code, expected",
    [
        ("raise SystemExit(7)", Exit(7)),
        ("import os; os.kill(os.getpid(), 15)", Exit(143, 15)),
        ("", Exit(0)),
    ],
)
async def test_how_a_program_ended_is_told_as_exit_code_or_signal(code: str, expected: Exit):
    process = await program(code)
    try:
        assert await asyncio.wait_for(process.ended(), 10) == expected
    finally:
        process.close()


async def test_closing_ends_a_program_that_still_runs():
    process = await program("import time; time.sleep(60)")
    process.close()

    assert await asyncio.wait_for(process.stdout.read(), 10) == b""
    assert process._popen.returncode == -9


async def test_what_was_printed_right_before_the_end_is_read():
    process = await program("import os; os.write(1, b'x' * 60000)")
    await asyncio.wait_for(process.ended(), 10)
    process.read_rest()

    assert await asyncio.wait_for(process.stdout.read(-1), 10) == b"x" * 60000
    process.close()
