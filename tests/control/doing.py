"""A control plane as `postroom` and a `Client` find it, with workers that a test drives by hand."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from postroom.projection.changes import APPROVALS
from tests import near
from tests.cli.conftest import LIMIT, command, environment
from tests.cli.terminal import Terminal
from tests.control.taskroom import KEY, SECONDS, Hand, TaskRoom, emptied

T = TypeVar("T")

REQUEST = "ab12cd34ab12cd34"
COMMAND = "make deploy TARGET=\u202eprod && echo done"


@dataclass
class Doing:
    """A worker whose sidecar reports what its agent does."""

    room: TaskRoom
    hand: Hand
    state: Path
    next: int = 1
    stored: list[int] = field(default_factory=list)

    @property
    def uid(self) -> str:
        return self.hand.uid

    async def report(self, *events: dict[str, Any]) -> None:
        """As the sidecar; folded on return."""
        done = await self.room.parts.events.append(self.uid, events, "run", self.next)
        self.next = done.next
        self.stored += done.ids
        await self.room.parts.fold.reached("EVENTS", done.at, SECONDS)

    async def asks(self, request: str = REQUEST, **more: Any) -> None:
        said = {"type": "control_request", "request": request, "kind": "tool", "tool": "Bash"}
        await self.report({**said, "title": "", "input": {"command": COMMAND}, **more})

    async def approval(self, request: str = REQUEST) -> dict[str, Any]:
        query = {"worker": self.uid}
        return (await self.room.api.get(f"/v1/approvals/{request}", params=query)).json()

    async def decided(self, request: str = REQUEST) -> dict[str, Any]:
        """The approval once it is settled."""
        found = await self.room.parts.changes.until(
            APPROVALS,
            lambda: self.approval(request),
            lambda one: one["state"] != "pending",
            SECONDS,
        )
        assert found["state"] != "pending"
        return found

    async def decide(self, decision: str, channel: str = "cli", pin: str = "") -> None:
        """Answer elsewhere."""
        answer = {"type": "control_response", "id": REQUEST, "decision": decision}
        done = await self.room.api.post(
            f"/v1/workers/{self.uid}/control", json=answer | {"channel": channel, "pin": pin}
        )
        assert done.status_code == 200, done.text

    def terminal(self, *words: str, columns: int = 80, **more: Any) -> Terminal:
        return Terminal(*words, "--state", str(self.state), columns=columns, **more)


def piped(*words: str) -> subprocess.Popen[str]:
    """`postroom` between two pipes; it is killed after a while, so that no read of them waits for ever."""
    process = subprocess.Popen(
        command(*words),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    late = threading.Timer(LIMIT, process.kill)
    late.daemon = True
    late.start()
    return process


async def away(work: Callable[[], T]) -> T:
    """Wait for a blocking piece of work while the room goes on."""
    return await asyncio.to_thread(work)


def announced(room: TaskRoom, folder: Path) -> Path:
    """The folder, as the state folder of that room: `postroom --state` and `Client.at` find it there."""
    record = {"url": f"http://{room.site.host}", "pid": os.getpid(), "token": KEY}
    file = folder / "server.json"
    file.touch(0o600)
    file.write_text(json.dumps(record))
    near.offer(folder)
    return folder


@asynccontextmanager
async def working(shared: TaskRoom, folder: Path, project: str = "") -> AsyncGenerator[Doing]:
    """A worker `coder` that runs."""
    announced(shared, folder)
    async with emptied(shared) as room:
        hand = await room.worker("coder", projects=(project,) if project else ())
        yield Doing(room, hand, folder)
