"""Retries of background work while the bus or the disk is at fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom_a2a.retry import RetryPolicy

RETRY = RetryPolicy(base=0.5, cap=30.0)

log = get_logger(__name__)


async def retry_until_done(
    step: Callable[[], Awaitable[None]], what: str, org: str, policy: RetryPolicy = RETRY
) -> None:
    """Repeat `step` until it succeeds; it logs one line when it begins to wait, and one when it goes on.

    Args:
        what: name of the work in the log.
        policy: the pauses; there is no last attempt.
    """
    failures = 0
    while True:
        try:
            await step()
        except PostroomError as error:
            if not failures:
                log.warning("%s of org %s waits: %s", what, org, error)
            failures += 1
        else:
            if failures:
                log.info("%s of org %s goes on", what, org)
            return
        await asyncio.sleep(policy.delay(failures))
