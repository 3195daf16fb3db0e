"""Other agents as A2A servers, for A2A clients beside the worker's agent: their operations and their cards.

What begins, answers or ends a task goes the durable way, by the control plane, whether the other runs or not; what is
not known there is asked of the other itself, which answers only while it runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from postroom.directory.cards import Card
from postroom.errors import InvalidInput, NotFound, PostroomError
from postroom.protocol.ids import UID
from postroom.sidecar.a2a.asking import AskedTasks
from postroom.sidecar.a2a.live import Live
from postroom.sidecar.actions import Actions
from postroom.sidecar.directory_client import DirectoryClient
from postroom.sidecar.task_client import TaskClient
from postroom_a2a.ecma_json import dumps
from postroom_a2a.json_operations import (
    PUSH,
    UNSUPPORTED,
    JsonOperations,
    not_offered,
    read_params,
)
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError

KNOWN = ("GetTask", "SubscribeToTask", "CancelTask")
"""Methods about a task that the other may know alone."""


class PeerOperations(JsonOperations):
    """The operations of another agent."""

    def __init__(self, tasks: AskedTasks, live: Live, worker: str) -> None:
        super().__init__(tasks)
        self._peer = worker
        self._live = live

    async def answer(self, call: Call) -> bytes:
        """As `Operations.answer`."""
        try:
            return await super().answer(call)
        except RpcError as error:
            if error.code is not Code.TASK_NOT_FOUND or call.method not in KNOWN:
                raise
            return await self._ask(call)

    async def other(self, call: Call) -> bytes:
        """As `JsonOperations.other`: what has no name here is asked of the agent itself."""
        if call.method in PUSH | UNSUPPORTED:
            raise not_offered(call.method)
        return await self._ask(call)

    async def _ask(self, call: Call) -> bytes:
        try:
            return dumps(await self._live.call(self._peer, call))
        except PostroomError as error:
            raise RpcError.of(error) from error

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        """As `Operations.stream`."""
        try:
            async with aclosing(super().stream(call)) as events:
                async for event in events:
                    yield event
            return
        except RpcError as error:
            if error.code is not Code.TASK_NOT_FOUND or call.method not in KNOWN:
                raise
        read_params(call)
        try:
            async with aclosing(self._live.stream(self._peer, call)) as results:
                async for result in results:
                    yield dumps(result)
        except PostroomError as error:
            raise RpcError.of(error) from error


class Peers:
    """The agents that this worker can ask.

    Args:
        ledger: what the control plane knows of tasks.
        live: the ephemeral path to the agents.
    """

    def __init__(
        self,
        actions: Actions,
        directory: DirectoryClient,
        task_client: TaskClient,
        live: Live,
        own: str,
    ) -> None:
        self._actions = actions
        self._directory = directory
        self._task_client = task_client
        self._live = live
        self._own = own

    async def operations(self, name: str) -> JsonOperations:
        """The operations of the agent with that nick or uid.

        Raises:
            InvalidInput: it is a person, or no name.
            PostroomError: the control plane did not answer.
        """
        found = await self._directory.describe(await self._directory.uid_of(_ref(name)))
        if found.kind == "human":
            raise InvalidInput(f"@{found.nick} is a person", remedy="send a message")
        tasks = AskedTasks(self._actions, self._task_client, self._live, self._own, found.uid)
        if found.uid == self._own:
            return JsonOperations(tasks)
        return PeerOperations(tasks, self._live, found.uid)

    async def card(self, name: str) -> Card:
        """The agent's card."""
        card = (await self._directory.entry(_ref(name))).get("card")
        if not isinstance(card, dict):
            raise NotFound(f"{name[:80]} has no Agent Card")
        return card


def _ref(name: str) -> str:
    return name if UID.fullmatch(name) or name.startswith("@") else f"@{name}"
