"""The MCP server by the official TypeScript SDK: its present client by both generations, and the one before it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom.mcp.tools import INSTRUCTIONS, USUAL, offered
from tests.agents.programs import MCP, NODE, installed
from tests.control.taskroom import TaskRoom, task_room
from tests.mcp.clients import session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
CLIENTS = {
    "present": ("@modelcontextprotocol/client", "auto"),
    "legacy": ("@modelcontextprotocol/client", "legacy"),
    "former": ("@modelcontextprotocol/sdk", "legacy"),
}


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as running:
        yield running


@pytest.mark.parametrize("which", CLIENTS)
async def test_the_typescript_client_lists_calls_and_is_told_errors(
    room: TaskRoom, which: str, tmp_path: Path
) -> None:
    modules = installed(MCP).parents[2]
    (tmp_path / "node_modules").symlink_to(modules)
    program = shutil.copy(Path(__file__).parent / "client.mjs", tmp_path)
    async with session(room, "app") as app, session(room, "api") as api:
        url = f"http://{room.site.host}/mcp"
        process = await asyncio.create_subprocess_exec(
            *(NODE, program, *CLIENTS[which], url, app.key),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        calls: list[dict[str, Any]] = [
            {"name": "a2a_send_message", "arguments": {"to": "@api", "text": which}},
            {"name": "a2a_send_message", "arguments": {"to": "@nobody", "text": "x"}},
            {"name": "a2a_whoami", "arguments": {}},
        ]
        said = "".join(json.dumps(each) + "\n" for each in calls)
        out, _ = await process.communicate(said.encode())
        first, sent, refused, me = [json.loads(line) for line in out.splitlines()]
        assert first == {
            "tools": [tool.name for tool in offered(USUAL)],
            "instructions": INSTRUCTIONS,
        }
        assert not sent.get("isError")
        assert refused["isError"]
        assert "nobody" in refused["content"][0]["text"]
        assert "@app" in me["content"][0]["text"]
        assert f"| {which}" in await api.call("a2a_check_inbox")
