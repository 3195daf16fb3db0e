"""A2A's operations of one agent for one principal, as they come in over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from postroom.control.guests import giving, sending
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.errors import NotFound, NotLetIn, PostroomError
from postroom.protocol.content import Content
from postroom.protocol.principal import Principal
from postroom.push.configs import AgentPushes
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.ports import TaskHead, TaskRow
from postroom.tasks.operations import AgentTasks
from postroom_a2a.http import ServedCard
from postroom_a2a.json_operations import PUSH, JsonOperations
from postroom_a2a.operations import Call
from postroom_a2a.service import PushConfig, Submitted
from postroom_a2a.tasks import Message, Task

CHANGING = frozenset({"SendMessage", "SendStreamingMessage", "CancelTask"}) | {
    name for name in PUSH if name.startswith(("Create", "Delete"))
}
"""Methods that need the scope `task`; all others need `read`."""


OWN = frozenset({"GetTask", "CancelTask"}) | {
    name for name in PUSH if not name.startswith("Create")
}
"""Methods about a task that its requester may call whether or not the agent lets it in any more."""


class DoorTasks(AgentTasks):
    """The tasks of an agent, for a principal; what it changes is noted for the audit log.

    Args:
        door: by which binding the request came.
        unseen: in place of `NotFound`, where the agent does not let the principal in.
    """

    def __init__(
        self, parts: Parts, agent: Agent, me: Principal, door: str, unseen: NotLetIn | None
    ) -> None:
        super().__init__(parts.tasks, parts.database, parts.changes, agent, me, door)
        self._parts = parts
        self._unseen = unseen

    async def submit(self, message: Message, _requester: str, *, follow: bool) -> Submitted:
        async with giving(
            self._parts, self._me, self._worker.uid, Content.whole(message), here=True
        ):
            submitted = await super().submit(message, _requester, follow=follow)
        acted_on(task=submitted.task)
        return submitted

    async def _row(self, task: str) -> TaskRow:
        with as_unseen(self._unseen):
            return await super()._row(task)

    async def cancel(self, task: str, _requester: str) -> Task:
        canceled = await super().cancel(task, _requester)
        acted_on(task=task)
        return canceled

    async def answer(self, task: str, message: Message, _requester: str) -> bool:
        row, said = await self._row(task), Content.whole(message)
        async with sending(self._parts, self._me, row, said):
            again = await super().answer(task, message, _requester)
        acted_on(task=task)
        return again


@contextmanager
def as_unseen(unseen: PostroomError | None) -> Generator[None]:
    """Raise `unseen` in place of `NotFound`."""
    try:
        yield
    except NotFound:
        if unseen is None:
            raise
        raise unseen from None


class DoorPushes(AgentPushes):
    """Where the changes of those tasks are pushed; what changes is noted for the audit log. `unseen` as above."""

    def __init__(self, parts: Parts, agent: Agent, me: Principal, unseen: NotLetIn | None) -> None:
        super().__init__(parts.pushes.pusher, parts.database, agent, me)
        self._unseen = unseen

    def _head(self, store: Store, task: str) -> TaskHead:
        with as_unseen(self._unseen):
            return super()._head(store, task)

    async def create(
        self, config: PushConfig, requester: str, *, after: int | None = None
    ) -> PushConfig:
        made = await super().create(config, requester, after=after)
        acted_on(task=config.task)
        return made

    async def delete(self, task: str, config: str, _requester: str) -> None:
        await super().delete(task, config, _requester)
        acted_on(task=task)


class DoorOperations(JsonOperations):
    """The operations of an agent, and its extended card.

    Args:
        extended: gives that card.
    """

    def __init__(
        self,
        tasks: DoorTasks,
        pushes: DoorPushes,
        extended: Callable[[], Awaitable[ServedCard]],
    ) -> None:
        # One of these serves one call, so it could count nothing: the guard of all requests counts streams by key.
        super().__init__(tasks, push=pushes, streams=sys.maxsize)
        self._extended = extended

    async def other(self, call: Call) -> bytes:
        if call.method == "GetExtendedAgentCard":
            return (await self._extended()).plain.text
        return await super().other(call)
