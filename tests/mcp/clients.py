"""Clients of the MCP server over a real socket: the official SDK of both generations, and plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.control.taskroom import SECONDS, TaskRoom

GENERATIONS = ("legacy", "auto")
"""With the handshake of the versions before, and without."""


@dataclass
class Session:
    """An agent with a key, and its client; `heard` has each body that went over the wire, with its headers."""

    uid: str
    nick: str
    key: str
    key_id: str
    client: Client
    api: httpx2.AsyncClient
    heard: list[str] = field(default_factory=list)

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text of a result that is no error."""
        text, fault = await self.tried(tool, **arguments)
        assert not fault, text
        return text

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The text of an error."""
        text, fault = await self.tried(tool, **arguments)
        assert fault, text
        return text

    async def tried(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert content.type == "text"
        return content.text, result.is_error


def as_bearer(room: TaskRoom, key: str) -> httpx2.AsyncClient:
    """A client of the API with that key."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(
        base_url=room.api.base_url, headers=headers, timeout=2 * SECONDS, verify=False
    )


@asynccontextmanager
async def session(
    room: TaskRoom, nick: str, mode: str = GENERATIONS[1], query: str = "", **headers: str
) -> AsyncGenerator[Session]:
    """A new external agent with a client that is open; it is removed at the end."""
    made = (await room.api.post("/v1/agents", json={"nick": nick})).json()
    key = made["key"]["key"]
    heard: list[str] = []

    async def note(answer: httpx2.Response) -> None:
        await answer.aread()
        heard.append(answer.request.content.decode())
        heard.append(f"{answer.headers} {answer.text}")

    async with AsyncExitStack() as stack:
        stack.push_async_callback(room.api.delete, f"/v1/agents/{made['uid']}")
        http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}", **headers},
            timeout=6 * SECONDS,
            event_hooks={"response": [note]},
            verify=False,
        )
        await stack.enter_async_context(http)
        url = f"http://{room.site.host}/mcp{query}"
        transport = streamable_http_client(url, http_client=http)
        client = await stack.enter_async_context(Client(transport, mode=mode))
        api = await stack.enter_async_context(as_bearer(room, key))
        yield Session(made["uid"], nick, key, made["key"]["id"], client, api, heard)


async def ended(room: TaskRoom, session: Session) -> None:
    """Wait until no request of a session runs."""
    running = room.parts.installation.in_flight._of_key
    async with asyncio.timeout(SECONDS):
        while running.get(session.key_id):  # noqa: ASYNC110 (nothing tells of its end)
            await asyncio.sleep(0.01)
