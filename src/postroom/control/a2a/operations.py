"""A2A's operations of one agent for one principal, as they come in over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.protocol.principal import Principal
from postroom.push.configs import AgentPushes
from postroom.store.agents import Agent
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


class DoorTasks(AgentTasks):
    """The tasks of an agent, for a principal; what it changes is noted for the audit log.

    Args:
        door: by which binding the request came.
    """

    def __init__(self, parts: Parts, agent: Agent, me: Principal, door: str) -> None:
        super().__init__(parts.tasks, parts.database, parts.changes, agent, me, door)

    async def submit(self, message: Message, _requester: str, *, follow: bool) -> Submitted:
        submitted = await super().submit(message, _requester, follow=follow)
        acted_on(task=submitted.task)
        return submitted

    async def cancel(self, task: str, _requester: str) -> Task:
        canceled = await super().cancel(task, _requester)
        acted_on(task=task)
        return canceled

    async def answer(self, task: str, message: Message, _requester: str) -> bool:
        again = await super().answer(task, message, _requester)
        acted_on(task=task)
        return again


class DoorPushes(AgentPushes):
    """Where the changes of those tasks are pushed; what changes is noted for the audit log."""

    def __init__(self, parts: Parts, agent: Agent, me: Principal) -> None:
        super().__init__(parts.pushes.pusher, parts.database, agent, me)

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
