"""How a run of the agent ends: by itself, or asked, then told, then forced."""

from __future__ import annotations

import asyncio
import signal

from postroom.sidecar.process import Exit
from postroom.sidecar.session import Session

SAY_TIMEOUT = 0.5
"""Seconds to get the `stop` record into an input that may be full."""

TERM_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""


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
        session.process.send_signal(number)
