"""Programs with keys of their own, which send, wait and read over kept-alive connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.connection import Connection
from benchmarks.room import PostRoom

FREE = {
    f"POSTROOM_LIMIT_{name}": "1000000"
    for name in ("REQUESTS", "BURST", "STRANGERS", "STREAMS", "PAIR", "WAITING")
}
"""Limits of callers that nobody reaches: the work is measured, and not who is refused."""


@dataclass(frozen=True, slots=True)
class Program:
    """An agent that Postroom does not run."""

    uid: str
    nick: str
    key: str


class Office:
    """A running post room, as its operator calls it."""

    def __init__(self, room: PostRoom, stack: AsyncExitStack) -> None:
        self.url: str = room.server["url"]
        self.plane: int = room.server["pid"]
        self._token: str = room.server["token"]
        self._stack = stack

    async def open(self) -> None:
        """Connect as the operator."""
        self._own = await self.connection(self._token)

    async def connection(self, key: str) -> Connection:
        """A connection of who has that key."""
        return await self._stack.enter_async_context(Connection(self.url, key))

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask something as the operator; the JSON of the answer."""
        return json.loads(await self._own.call(method, path, body))

    async def programs(self, name: str, count: int, org: str = "") -> list[Program]:
        """So many new programs."""
        base = f"/orgs/{org}" if org else ""
        made = []
        for number in range(count):
            body = {"nick": f"{name}{number}"}
            answer = await self.call("POST", f"{base}/v1/agents", body)
            made.append(Program(answer["uid"], answer["nick"], answer["key"]["key"]))
        return made

    async def let_in(self, granter: Program, grantees: Sequence[Program], org: str = "") -> None:
        """Have `granter`, of the organisation `org`, let in these."""
        base = f"/orgs/{org}" if org else ""
        for each in grantees:
            body = {"granter": granter.uid, "grantee": each.uid}
            await self.call("POST", f"{base}/v1/grants", body)


async def open_again(connections: Sequence[Connection]) -> None:
    """Connect again: a server closes what rests."""
    await asyncio.gather(*(each.open() for each in connections))
