"""MCP of a client's sessions: each line goes to `/mcp` of the post room with the key of the session that calls.

A result that holds messages is a hand-over like that of a hook: noted first, taken once it was written, proven by what
follows. What a subagent reads is not read by its session.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from postroom.connect.dialects import Said
from postroom.connect.mailbox import Event, Kind, Offer
from postroom.connect.processes import began
from postroom.connect.registry import Registry
from postroom.connect.session import Session
from postroom.errors import PostroomError, ProtocolViolation, StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.frame import AGAIN
from postroom.protocol.handover import CALLER, MESSAGES, OWN_RECEIPTS
from postroom_a2a.text import one_line

log = get_logger(__name__)

WAITS = 5.0
"""Seconds that a call waits for the address of its session."""

SILENCE = 90.0
"""Seconds for an answer: a tool waits 50 at most."""

MOST = 8 << 20
"""Bytes of an answer."""

AT_ONCE = 16
"""Requests of one client that are on their way."""

OF_NOBODY = frozenset({"initialize", "server/discover", "tools/list", "ping"})
"""Methods whose answer is the same for everybody: before a session has an address, `run` asks in its person's name."""

SESSION = "postroom_session"
"""Argument of a tool call: the conversation, from a client whose server does not know it."""

VERSION = "io.modelcontextprotocol/protocolVersion"
"""In the `_meta` of a request, since the protocol of 2026-07-28; it has to stand in a header, too."""


class Forwarding:
    """Forwards the requests of clients."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def serve(
        self,
        client: str,
        pid: int,
        session: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One client's server, to its end."""
        link = _Link(self._registry, client, pid, session, writer)
        async with asyncio.TaskGroup() as group:
            tasks: set[asyncio.Task[None]] = set()
            while line := await reader.readline():
                while len(tasks) >= AT_ONCE:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                task = group.create_task(link.forward(line), name="an MCP request")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            for task in tasks:  # nobody reads their answers
                task.cancel()


class _Link:
    """One client's server."""

    def __init__(
        self,
        registry: Registry,
        client: str,
        pid: int,
        session: str,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._registry = registry
        self._client = client
        self._pid = pid
        self._session = session
        self._writer = writer
        self._version = ""

    async def forward(self, line: bytes) -> None:
        """One message of the client's."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return await self._write(_error(None, -32700, "not JSON"))
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return None
        try:
            await self._request(message)
        except (PostroomError, StateUnwritable) as error:
            remedy = f": {error.remedy}" if error.remedy else ""
            log.info("%s of %s failed: %s", one_line(message["method"], 40), self._client, error)
            if "id" in message:
                await self._write(_failed(message, f"Postroom: {error}{remedy}"))
        except ConnectionError:
            pass  # the client has gone
        return None

    async def _request(self, message: dict[str, Any]) -> None:
        session = await self._caller(message)
        if session is not None and not session.heard and message["method"] == "tools/call":
            await self._prove(session)
        answer = await self._sent(message, session)
        if answer is None or "id" not in message:
            return
        if message["method"] == "initialize":
            self._version = str(_inside(answer, "result").get("protocolVersion", ""))
        ids = _inside(answer, "result", "_meta").get(MESSAGES)
        if (
            session is None
            or not isinstance(ids, list)
            or not ids
            or self._of_subagent(session, message)
        ):
            await self._write(answer)
            return
        await self._hand(session, [each for each in ids if isinstance(each, str)], answer)

    async def _prove(self, session: Session) -> None:
        """No hook tells what the session does: then its next call is proof of what an earlier result held."""
        async with session.lock:
            for kind in (Kind.REQUEST, Kind.RESPONSE):
                session.on(Event(kind))

    async def _hand(self, session: Session, ids: list[str], answer: dict[str, Any]) -> None:
        """A result with messages: what was shown before says so, what is handed over is noted before it leaves."""
        await session.know(ids)
        async with session.lock:
            again = [
                each
                for each in ids
                if each in session.box.letters and session.box.letters[each].again
            ]
            if session.box.read(ids):
                session.save(Offer("", tuple(ids)))
            content = answer["result"].get("content")
            if again and isinstance(content, list):
                content.append({"type": "text", "text": f"{AGAIN} ({', '.join(again)})"})
            try:
                await self._write(answer)
            except ConnectionError:
                session.box.lost(ids)
                raise
            else:
                session.box.took(ids)
            finally:
                session.save()
        self._registry.news()

    async def _caller(self, message: dict[str, Any]) -> Session | None:
        """The session that asks; None where the answer is the same for everybody.

        Raises:
            ProtocolViolation: nobody knows which it is.
        """
        named = _named(message) or self._session
        found = self._registry.of_call(self._client, self._pid, named)
        if found is not None or message["method"] in OF_NOBODY or "id" not in message:
            return found
        if named or self._pid:
            # Hooks may not run, or have not yet: the first call registers.
            key = named or f"mcp-{self._pid}-{began(self._pid)}"
            said = Said(
                self._client, key, "mcp", Event(Kind.REQUEST), cwd=_folder(message, self._pid)
            )
            found = await self._registry.session_of(said, self._pid, WAITS)
        if found is None:
            raise ProtocolViolation(
                "this session has no address yet", remedy="postroom doctor connect says why"
            )
        return found

    def _of_subagent(self, session: Session, message: dict[str, Any]) -> bool:
        """Whether a subagent of the session calls, as its hook has said of the same tool call."""
        use = _inside(message, "params", "_meta").get("claudecode/toolUseId")
        return isinstance(use, str) and use in session.subagents

    async def _sent(
        self, message: dict[str, Any], session: Session | None
    ) -> dict[str, Any] | None:
        """The post room's answer, None for none."""
        client = session.client if session is not None else self._registry.person()
        if session is not None:
            await self._registry.tell(session)  # so that the post room knows what was handed over
        content = json.dumps(message).encode()
        async with client.transport.exchange(
            "POST", "/mcp", silence=SILENCE, content=content, headers=self._headers(message)
        ) as answer:
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > MOST:
                    raise ProtocolViolation("the answer of the post room is too large")
        if not body:
            return None
        try:
            found = json.loads(body)
        except ValueError as error:
            raise ProtocolViolation("the answer of the post room is not JSON") from error
        return found if isinstance(found, dict) else None

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            OWN_RECEIPTS: CALLER,
        }
        params = _inside(message, "params")
        version = _inside(params, "_meta").get(VERSION)
        if isinstance(version, str):
            headers["Mcp-Method"] = one_line(message["method"], 100)
            name = params.get("name", params.get("uri"))
            if isinstance(name, str):
                headers["Mcp-Name"] = one_line(name, 200)
        else:
            version = self._version
        if version and message["method"] != "initialize":
            headers["MCP-Protocol-Version"] = one_line(version, 40)
        return headers

    async def _write(self, answer: Mapping[str, Any]) -> None:
        # One write a line, so that answers of requests at once do not mix.
        self._writer.write(json.dumps(answer).encode() + b"\n")
        await self._writer.drain()


def _inside(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The object below these names, empty where there is none."""
    found: Any = value
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _named(message: dict[str, Any]) -> str:
    """The conversation that a call names: Codex in its `_meta`, our plugin of OpenCode in an argument."""
    own = _inside(message, "params", "arguments").pop(SESSION, "")
    if isinstance(own, str) and own:
        return own
    turn = _inside(message, "params", "_meta", "x-codex-turn-metadata")
    named = turn.get("session_id") or turn.get("thread_id")
    return named if isinstance(named, str) else ""


def _folder(message: dict[str, Any], pid: int) -> str:
    turn = _inside(message, "params", "_meta", "x-codex-turn-metadata")
    spaces = turn.get("workspaces")
    if isinstance(spaces, dict) and spaces:
        return str(next(iter(spaces)))
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _error(number: Any, code: int, words: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words}}


def _failed(message: dict[str, Any], words: str) -> dict[str, Any]:
    """What failed, as a model reads it; for anything but a tool as an error of the protocol."""
    if message["method"] != "tools/call":
        return _error(message["id"], -32603, words)
    result = {"content": [{"type": "text", "text": words}], "isError": True}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}
