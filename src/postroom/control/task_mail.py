"""What becomes of the tasks that sessions have given: an end or a question comes as mail of the worker.

Who calls the API by a program waits for its tasks; a session in somebody's terminal is told as of any other mail. The
message follows from the task alone, under a key of its own, so it is sent once, also after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from postroom.directory.sessions import Sessions
from postroom.errors import CallerError, Refused
from postroom.mail.office import PostOffice
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.projection.changes import TASKS, Change, Changes, Signal
from postroom.projection.due import LONGEST_SLEEP
from postroom.protocol.content import Content
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import TaskView
from postroom_a2a.text import one_line

MOST = 20_000
"""Characters of a result in the message; the task has all of it."""

LATELY = 86400.0
"""Seconds back for which a start looks for what was not told."""

TASKS_OF_ONE = 50

log = get_logger(__name__)

BranchOf = Callable[[str], str]


class TaskMail:
    """Tells sessions.

    Args:
        branch_of: gives the branch that a worker's work is on, "" for none.
    """

    def __init__(
        self,
        changes: Changes,
        sessions: Sessions,
        tasks: OrgTaskService,
        office: PostOffice,
        branch_of: BranchOf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._changes = changes
        self._sessions = sessions
        self._tasks = tasks
        self._office = office
        self._branch_of = branch_of
        self._clock = clock

    async def run(self) -> None:
        """Tell them until cancelled, or until the changes are closed."""
        with self._changes.listen(TASKS, only=self._concerns) as listener:
            await self._catch_up()
            while True:
                change = await listener.next(LONGEST_SLEEP)
                if change is Signal.CLOSED:
                    return
                if change is Signal.GAP:
                    await self._catch_up()
                elif isinstance(change, Change):
                    await self._tell(change.id)
                well()

    def _concerns(self, change: Change) -> bool:
        return bool(change.event) and self._sessions.of(change.sender) is not None

    async def _catch_up(self) -> None:
        for uid in self._sessions.uids:
            for view in await self._tasks.listed(requester=uid, limit=TASKS_OF_ONE):
                if view.updated_at >= self._clock() - LATELY:
                    await self._tell(view.id)

    async def _tell(self, task: str) -> None:
        """Raises PeerError, EnvironmentFault: perhaps not told; the next look tells it."""
        try:
            view = await self._tasks.get(task)
            if view.worker.uid == view.requester.uid:
                return
            if view.final or view.state.interrupted:
                await self._office.send(
                    view.worker.uid,
                    view.requester.uid,
                    Content.of_text(self._said(view)),
                    expects_reply=False,
                    key=f"task {view.id} {view.seq}",
                    folded=False,
                )
        except CallerError as error:
            log.debug("nothing more is told of task %s: %s", task, error)
        except Refused as error:
            log.warning("the requester of task %s was not told: %s", task, error)

    def _said(self, view: TaskView) -> str:
        if view.state.interrupted:
            question = view.status_text or view.detail
            return f"Task {view.id} asks: {question[:MOST]}\nTo answer: tool a2a_reply, message {view.id}."
        texts = [f"Task {view.id} is {view.state.value}."]
        results = [str(each["text"]) for each in view.artifacts or () if each["text"]]
        texts += results or [text for text in (view.status_text, view.detail) if text][:1]
        if branch := self._branch_of(view.worker.uid):
            texts.append(f"What it has changed is on the branch {one_line(branch, 200)}.")
        whole = "\n".join(texts)
        if len(whole) > MOST:
            return f"{whole[:MOST]}…\n(cut: tool a2a_get_task has all of it)"
        return whole
