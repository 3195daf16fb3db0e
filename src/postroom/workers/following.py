"""Brings back the work of a worker whenever a task of it ends or waits for an answer."""

from __future__ import annotations

from postroom.errors import DatabaseAway
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.projection.changes import TASKS, Change, Changes, Signal
from postroom.workers.lifecycle import Workers
from postroom_a2a.task_state import INTERRUPTED, TERMINAL

log = get_logger(__name__)

IDLE = 3600.0
LIMIT = 256
"""Changes that wait while one worker's work is brought back; beyond that all workers' work is."""

RESTING = frozenset(state.value for state in TERMINAL | INTERRUPTED)


class WorkFollower:
    """Follows the tasks of an organisation, one worker at a time."""

    def __init__(self, workers: Workers, changes: Changes) -> None:
        self._workers = workers
        self._changes = changes
        self._missed = False

    async def run(self) -> None:
        """Follow until it is cancelled; what a fault kept from it comes first."""
        with self._changes.listen(TASKS, limit=LIMIT, only=self._counts) as listener:
            if self._missed:
                await self._bring("")
            while True:
                change = await listener.next(IDLE)
                if change is Signal.CLOSED:
                    return
                if change is Signal.GAP:
                    await self._bring("")
                elif isinstance(change, Change):
                    await self._bring(change.recipient)

    def _counts(self, change: Change) -> bool:
        rests = change.kind == "task" and change.state in RESTING
        return rests and self._workers.work.held(change.recipient) is not None

    async def _bring(self, uid: str) -> None:
        """Bring back the work of one worker, or of all for ""."""
        self._missed = True
        for agent, record in await self._workers.records():
            if uid in ("", agent.uid):
                try:
                    await self._workers.work.after(agent, record)
                except DatabaseAway:
                    raise
                except Exception:
                    # What is wrong with one worker's work holds up no other's.
                    log.exception("the work of %s was not brought back", agent.uid)
        self._missed = False
        well()
