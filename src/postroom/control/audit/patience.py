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


async def insist(step: Callable[[], Awaitable[None]], what: str) -> None:
    """Take `step` until it succeeds."""
    pause = FIRST
    while True:
        try:
            await step()
        except PostroomError as error:
            log.warning("%s waits: %s", what, error)
        else:
            return
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)
        pause = min(pause * 2, LONGEST)
