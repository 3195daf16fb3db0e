"""Background work under its supervisor, as the control plane runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from postroom.observe.supervision import FAILING, Loop, Work, supervisor
from postroom.protocol.alerts import RaiseAlert
from postroom_a2a.retry import RetryPolicy

QUICK = RetryPolicy(base=0.01, cap=0.05)


@asynccontextmanager
async def supervised(
    *works: Work, tell: RaiseAlert | None = None, kind: str = FAILING
) -> AsyncGenerator[list[Loop]]:
    async with supervisor() as made:
        for number, work in enumerate(works):
            made.supervise(f"work {number}", work, retry=QUICK, kind=kind)
        if tell is not None:
            made.tell_by(tell)
        yield list(made.loops.values())
