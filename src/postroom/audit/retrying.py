"""Background work that waits out faults of the bus and the disk."""

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
    """Take `step` until it succeeds; the log has one line when it begins to wait, and one when it goes on.

    Args:
        what: its name in the log.
        org: the organisation that it is done for.
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
