"""A worker that asks before it acts, driven by hand through its own door."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from postroom.protocol.events import EventKind
from tests.control.taskroom import Hand, TaskRoom, door_of

SECONDS = 10.0


def new_id() -> str:
    return secrets.token_hex(16)


def request(approval: str, **more: Any) -> dict[str, Any]:
    """A `control_request` for a command."""
    asked = {
        "type": EventKind.CONTROL_REQUEST.value,
        "request": approval,
        "kind": "tool",
        "tool": "Bash",
        "title": "make deploy",
        "input": {"command": "make deploy"},
        "reason": "the tests are green",
        "default": "deny",
    }
    return asked | more


def response(approval: str, decision: str, channel: str, **more: Any) -> dict[str, Any]:
    """A `control_response`, whoever may say it."""
    said = {
        "type": EventKind.CONTROL_RESPONSE.value,
        "request": approval,
        "decision": decision,
        "by": {},
        "channel": channel,
    }
    return said | more


@dataclass
class Sidecar:
    """What a worker's sidecar does with approvals."""

    room: TaskRoom
    worker: Hand
    door: httpx2.AsyncClient
    run: str = field(default_factory=new_id)
    next: int = 1

    @property
    def path(self) -> str:
        return f"/v1/workers/{self.worker.uid}"

    async def report(self, *events: dict[str, Any]) -> list[int]:
        """Report events; their ids. They are folded on return."""
        body = {"run": self.run, "first": self.next, "events": list(events)}
        answer = await self.door.post(f"{self.path}/sdk-events", json=body)
        assert answer.status_code == 202, answer.text
        self.next += len(events)
        await self.room.folded("EVENTS")
        return answer.json()["stored"]

    async def ask(self, approval: str = "", **more: Any) -> str:
        """Ask for an approval; its id."""
        named = approval or new_id()
        await self.report(request(named, **more))
        return named

    async def heard(self, after: int = 0, wait: float = 0.0) -> dict[str, Any]:
        """What `control/pending` answers."""
        query = {"after_id": after, "wait": wait}
        answer = await self.door.get(f"{self.path}/control/pending", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def sidecar_of(room: TaskRoom, nick: str = "alice") -> AsyncGenerator[Sidecar]:
    """A new worker of that nick, and its door."""
    worker = await room.worker(nick)
    async with door_of(room, worker) as door:
        yield Sidecar(room, worker, door)


async def answer(
    room: TaskRoom, nick: str, approval: str, decision: str = "allowed", **more: Any
) -> httpx2.Response:
    """A person's answer over the API."""
    body = {"type": "control_response", "id": approval, "decision": decision} | more
    return await room.api.post(f"/v1/workers/{nick}/control", json=body)


async def shown(room: TaskRoom, approval: str) -> dict[str, Any]:
    """An approval as the API shows it."""
    return (await room.api.get(f"/v1/approvals/{approval}")).json()
