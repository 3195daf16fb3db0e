"""An agent on the official Python SDK of ACP, the reference for our driver. A prompt says what it does:

    tell, work, ask, plan, read, fail, auth, remember (what it was told in this session before)

Sessions are files in its folder, so that another run can load them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import acp
from acp import helpers, schema


class Reference:
    """What it is told in a session, it appends to the session's file."""

    def __init__(self) -> None:
        self._client: Any = None
        self._cancelled = asyncio.Event()
        self._servers: list[Any] = []

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True, mcp_capabilities=schema.McpCapabilities(http=True)
            ),
            agent_info=schema.Implementation(name="reference", version="0.12"),
        )

    async def new_session(
        self, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> acp.NewSessionResponse:
        self._servers = list(mcp_servers or [])
        ident = f"s{len(list(Path(cwd).glob('*.session')))}"
        (Path(cwd) / f"{ident}.session").write_text("")
        self._folder = Path(cwd)
        return acp.NewSessionResponse(session_id=ident)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> acp.LoadSessionResponse:
        self._folder = Path(cwd)
        if not self._file(session_id).exists():
            raise acp.RequestError.resource_not_found(session_id)
        for line in self._file(session_id).read_text().splitlines():
            await self._client.session_update(
                session_id, helpers.update_agent_message_text(f"(told before: {line})")
            )
        return acp.LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> acp.PromptResponse:
        self._cancelled.clear()
        text = prompt[0].text
        with self._file(session_id).open("a") as file:
            file.write(text.splitlines()[-1] + "\n")
        for word in ("remember", "plan", "read", "ask", "fail", "auth", "work", "tell"):
            if text.endswith(word):
                return await getattr(self, f"_{word}")(session_id) or _done()
        raise acp.RequestError.invalid_params({"details": f"what is {text!r}?"})

    async def _tell(self, session: str) -> None:
        names = ", ".join(server.name for server in self._servers)
        for word in ("Hello ", "again. ", f"[{names}]"):
            await self._update(session, helpers.update_agent_message_text(word))

    async def _remember(self, session: str) -> None:
        text = self._file(session).read_text().replace("\n", ";")
        await self._update(session, helpers.update_agent_message_text(text))

    async def _plan(self, session: str) -> None:
        await self._update(session, helpers.update_agent_thought_text("Hm."))
        await self._update(
            session, helpers.update_plan([helpers.plan_entry("look", status="completed")])
        )

    async def _work(self, session: str) -> None:
        start = helpers.start_tool_call("c1", "ls", kind="execute", raw_input={"command": "ls"})
        await self._update(session, start)
        await self._update(
            session,
            helpers.update_tool_call("c1", status="completed", raw_output={"output": "a.txt"}),
        )

    async def _ask(self, session: str) -> acp.PromptResponse | None:
        call = schema.ToolCallUpdate(
            tool_call_id="c2",
            title="write a.txt",
            kind="edit",
            content=[helpers.tool_diff_content("a.txt", "new\n", "old\n")],
        )
        options = [
            schema.PermissionOption(option_id="1", name="No", kind="reject_once"),
            schema.PermissionOption(option_id="2", name="Yes", kind="allow_once"),
        ]
        answer = await self._client.request_permission(session, call, options)
        if answer.outcome.outcome == "cancelled":
            await self._cancelled.wait()
            return acp.PromptResponse(stop_reason="cancelled")
        said = f"chosen: {answer.outcome.option_id}"
        await self._update(session, helpers.update_tool_call("c2", status="completed"))
        await self._update(session, helpers.update_agent_message_text(said))
        return None

    async def _read(self, session: str) -> None:
        try:
            await self._client.read_text_file(session, "/etc/hostname")
        except acp.RequestError as error:
            await self._update(session, helpers.update_agent_message_text(f"refused: {error.code}"))

    async def _fail(self, session: str) -> None:
        raise acp.RequestError.internal_error({"details": "the model said 401"})

    async def _auth(self, session: str) -> None:
        raise acp.RequestError.auth_required()

    async def _update(self, session: str, update: Any) -> None:
        await self._client.session_update(session, update)

    def _file(self, session: str) -> Path:
        return self._folder / f"{session}.session"


def _done() -> acp.PromptResponse:
    usage = schema.Usage(
        input_tokens=100, output_tokens=15, cached_read_tokens=20, total_tokens=135
    )
    return acp.PromptResponse(stop_reason="end_turn", usage=usage)


if __name__ == "__main__":
    agent: Any = Reference()
    asyncio.run(acp.run_agent(agent))
