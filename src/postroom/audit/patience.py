"""Background work that waits out faults of the bus and the disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from postroom.errors import PostroomError
from postroom.observe import get_logger

FIRST, LONGEST = 0.5, 30.0
"""Seconds between two attempts, before jitter."""

log = get_logger(__name__)


async def insist(step: Callable[[], Awaitable[None]], what: str, org: str) -> None:
    """Take `step` until it succeeds; the log has one line when it begins to wait, and one when it goes on.

    Args:
        step: to take.
        what: it is, for the log.
        org: the organisation that it is done for.
    """
    pause = FIRST
    waits = False
    while True:
        try:
            await step()
        except PostroomError as error:
            if not waits:
                log.warning("%s of org %s waits: %s", what, org, error)
            waits = True
        else:
            if waits:
                log.info("%s of org %s goes on", what, org)
            return
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)
        pause = min(pause * 2, LONGEST)
