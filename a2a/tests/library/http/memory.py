"""Tasks in memory, one agent's, for a front end alone; and ASGI requests by hand, so that a test can hang up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from postroom_a2a.errors import Conflict, InvalidInput, NotFound
from postroom_a2a.http import A2AApplication, Asked, Exchange, Front, ServedCard
from postroom_a2a.json_operations import JsonOperations
from postroom_a2a.service import Submitted, TaskPage, TaskQuery, TaskVersion
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task, agent_message, apply, new_task, status_update

DEADLINE = 5.0


@dataclass(frozen=True)
class Change:
    sequence: int
    state: TaskState
    event: Event | None = field(hash=False)

    @property
    def settled(self) -> bool:
        return self.state.terminal or self.state.interrupted


class MemoryTasks:
    """A `TaskService` whose agent is the test: it calls `say`."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.changes: dict[str, list[Change]] = {}
        self.following = 0
        self.changed = asyncio.Condition()
        self._named: dict[str, str] = {}

    async def submit(self, message: Message, _requester: str, *, follow: bool) -> Submitted:
        again = message["messageId"] in self._named
        task = self._named.setdefault(message["messageId"], f"t{len(self._named)}")
        if task not in self.tasks:
            context = message.get("contextId") or f"c-{task}"
            self.tasks[task] = new_task(task, context, message, time.time())
            self.changes[task] = [Change(1, TaskState.SUBMITTED, None)]
        return Submitted(task, again)

    async def say(self, task: str, state: TaskState, text: str = "") -> None:
        found = self.tasks[task]
        message = agent_message(found, text) if text else None
        event = status_update(found, state, time.time(), message)
        async with self.changed:
            self.tasks[task] = apply(found, event)
            self.changes[task].append(Change(len(self.changes[task]) + 1, state, event))
            self.changed.notify_all()

    async def get(self, task: str, _requester: str) -> TaskVersion:
        if task not in self.tasks:
            raise NotFound("there is no such task")
        return TaskVersion(self.tasks[task], self.changes[task][-1].sequence)

    async def wait(self, task: str, _requester: str, seconds: float) -> None:
        async with asyncio.timeout(seconds), self.changed:
            self.following += 1
            self.changed.notify_all()
            try:
                await self.changed.wait_for(lambda: self.changes[task][-1].settled)
            finally:
                self.following -= 1

    async def list(self, query: TaskQuery, _requester: str) -> TaskPage:
        if query.page:
            raise InvalidInput("there is no such page")
        found = [
            {name: value for name, value in task.items() if name != "artifacts"}
            for task in self.tasks.values()
            if query.context in ("", task["contextId"])
        ]
        return TaskPage(found[: query.limit], len(found))

    async def cancel(self, task: str, _requester: str) -> Task:
        if (await self.get(task, "")).state.terminal:
            raise Conflict("it has ended")
        await self.say(task, TaskState.CANCELED)
        return self.tasks[task]

    async def answer(self, task: str, _message: Message, _requester: str) -> bool:
        if not self.changes[task][-1].state.interrupted:
            raise Conflict("it waits for nothing")
        await self.say(task, TaskState.WORKING)
        return False

    async def follow(self, task: str, _requester: str, after: int) -> AsyncGenerator[Change, None]:
        self.following += 1
        try:
            while True:
                for change in [each for each in self.changes[task] if each.sequence > after]:
                    after = change.sequence
                    yield change
                    if change.state.terminal:
                        return
                async with self.changed:
                    self.changed.notify_all()
                    known = len(self.changes[task])
                    await self.changed.wait_for(lambda: len(self.changes[task]) > known)  # noqa: B023
        finally:
            self.following -= 1

    async def followed(self, number: int) -> None:
        """Return when so many follow or wait."""
        async with asyncio.timeout(DEADLINE), self.changed:
            await self.changed.wait_for(lambda: self.following == number)


CARD: dict[str, Any] = {
    "name": "poet",
    "description": "writes",
    "version": "1",
    "supportedInterfaces": [
        {"url": "http://a.test", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "w", "name": "w", "description": "writes", "tags": ["w"]}],
}


@dataclass
class Heard:
    """An answer as far as it has come."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Id and data of each event."""
        found = []
        for block in self.body.decode().split("\n\n"):
            lines = dict(
                line.split(": ", 1)
                for line in block.split("\n")
                if not line.startswith(":") and line
            )
            if "data" in lines:
                found.append((lines.get("id", ""), json.loads(lines["data"])))
        return found


class Caller:
    """One request, whose client may hang up."""

    def __init__(
        self, app: Any, verb: str, path: str, body: bytes, headers: dict[str, str]
    ) -> None:
        self.heard = Heard()
        self._gone = asyncio.Event()
        self._came = asyncio.Condition()
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": verb,
            "path": path,
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if given:
                return given.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            async with self._came:
                if message["type"] == "http.response.start":
                    self.heard.status = message["status"]
                    self.heard.headers = {
                        name.decode(): value.decode() for name, value in message["headers"]
                    }
                else:
                    self.heard.body += message["body"]
                    self.heard.ended = not message.get("more_body")
                self._came.notify_all()

        self.running = asyncio.create_task(app(scope, receive, send))

    async def until(self, wanted: Any) -> Heard:
        async with asyncio.timeout(DEADLINE), self._came:
            await self._came.wait_for(lambda: wanted(self.heard))
        return self.heard

    async def end(self) -> Heard:
        async with asyncio.timeout(DEADLINE):
            await self.running
        return self.heard

    async def hang_up(self) -> None:
        self._gone.set()
        await self.end()


class Server:
    """An application over tasks in memory."""

    def __init__(self, **more: Any) -> None:
        self.tasks = MemoryTasks()
        self.asked: list[Asked] = []
        operations = JsonOperations(self.tasks)

        async def operations_of(_exchange: Exchange, asked: Asked) -> JsonOperations:
            self.asked.append(asked)
            return operations

        async def card_of(_exchange: Exchange) -> ServedCard:
            return ServedCard(CARD, 1_700_000_000.0)

        self.app = A2AApplication(Front(operations_of, **more), card_of)

    def call(self, verb: str, path: str, body: Any = None, **headers: str) -> Caller:
        """A request; the body is JSON unless it is bytes."""
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        known = {"A2A-Version": "1.0"} | ({"Content-Type": "application/json"} if raw else {})
        return Caller(self.app, verb, path, raw, known | named)

    async def ask(self, verb: str, path: str, body: Any = None, **headers: str) -> Heard:
        return await self.call(verb, path, body, **headers).end()

    def rpc(self, method: str, params: Any = None, **headers: str) -> Caller:
        record = {"jsonrpc": "2.0", "id": "a", "method": method, "params": params or {}}
        return self.call("POST", "/", record, **headers)

    async def result(self, method: str, params: Any = None, **headers: str) -> Any:
        return (await self.rpc(method, params, **headers).end()).json["result"]

    async def error(self, method: str, params: Any = None, **headers: str) -> int:
        return (await self.rpc(method, params, **headers).end()).json["error"]["code"]


def said(message_id: str, **more: Any) -> dict[str, Any]:
    return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "do"}], **more}
