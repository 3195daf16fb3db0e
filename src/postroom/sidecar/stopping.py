"""How a run of the agent goes to its end: by itself, or asked, then told, then forced."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from postroom.sidecar.adapters import End, Said
from postroom.sidecar.process import Exit
from postroom.sidecar.session import Session

SAY_TIMEOUT = 0.5
"""Seconds to get the `stop` record into an input that may be full."""

TERM_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""


DRAIN_TIMEOUT = 10.0
"""Seconds to carry out what an ended agent had printed before its end."""

STOP_TIMEOUT = 1.0
"""The same when the worker is being stopped, and whoever stops it will not wait for long."""


async def attend(
    session: Session,
    act: Callable[[Said], Awaitable[None]],
    stop: asyncio.Event,
    grace: float,
    withdraw: Callable[[], Awaitable[None]],
) -> Exit:
    """Carry out what a run of the agent says, up to its end and all that its end implies.

    Args:
        session: the run.
        act: carries out one action.
        stop: set to end it, which takes `grace` and some seconds.
        grace: seconds that it has to end by itself then.
        withdraw: called as soon as it has ended, so that nothing more is handed to it.
    """
    process = session.process
    try:
        async with asyncio.TaskGroup() as tasks:
            readers = [
                tasks.create_task(session.read_stdout(act)),
                tasks.create_task(session.read_stderr()),
            ]
            ended = await end(session, stop, grace)
            await withdraw()
            process.read_rest()
            patience = STOP_TIMEOUT if stop.is_set() else DRAIN_TIMEOUT
            await asyncio.wait(readers, timeout=patience)
            for task in readers:
                task.cancel()
    finally:
        process.close()
    final = End(ended.code, ended.signal, session.told_to_end, "\n".join(session.last_words))
    for action in session.adapter.finish(final):
        await act(action)
    session.over(ended.detail)
    return ended


async def end(session: Session, stop: asyncio.Event, grace: float) -> Exit:
    """Wait for the end of the run; once `stop` is set, bring it about within `grace` and some seconds."""
    ended = asyncio.ensure_future(session.process.ended())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            await _stop(session, ended, grace)
        return await ended
    finally:
        stopping.cancel()
        ended.cancel()


async def _stop(session: Session, ended: asyncio.Future[Exit], grace: float) -> None:
    try:
        async with asyncio.timeout(SAY_TIMEOUT):
            await session.say({"type": "stop"})
    except (TimeoutError, BrokenPipeError):
        pass  # it does not read; the end of its input and the signals say the same
    session.process.input.close()
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, TERM_GRACE)):
        await asyncio.wait({ended}, timeout=patience)
        if ended.done():
            return
        session.send_signal(number)
