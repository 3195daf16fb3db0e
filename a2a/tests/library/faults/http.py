"""A2A over HTTP as plain JSON-RPC: no client of ours, so that what is tested is the server."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx2

PATIENCE = 30.0
OPEN = frozenset({"submitted", "working"})


class Refusal(Exception):
    """The error that answered a call."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]


def state(task: dict[str, Any]) -> str:
    """The state of a task, as A2A 0.3 spells it."""
    return task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


def message(text: str, **fields: Any) -> dict[str, Any]:
    fields.setdefault("messageId", secrets.token_hex(16))
    return {"role": "ROLE_USER", "parts": [{"text": text}], **fields}


@dataclass(slots=True)
class Caller:
    """A caller of one agent at one address."""

    http: httpx2.AsyncClient
    url: str

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with asyncio.timeout(PATIENCE):
            answer = await self.http.post(self.url, json=body, headers={"A2A-Version": "1.0"})
        record = answer.json()
        if "error" in record:
            raise Refusal(record["error"])
        return record["result"]

    async def send(
        self, text: str | dict[str, Any], *, at_once: bool = False, **configuration: Any
    ) -> dict[str, Any]:
        """The task, or the message, that answers."""
        said = message(text) if isinstance(text, str) else text
        params = {
            "message": said,
            "configuration": {"returnImmediately": at_once, **configuration},
        }
        result = await self.call("SendMessage", params)
        return result.get("task") or result["message"]

    async def get(self, task: str) -> dict[str, Any]:
        return await self.call("GetTask", {"id": task})

    async def cancel(self, task: str) -> dict[str, Any]:
        return await self.call("CancelTask", {"id": task})

    async def stream(
        self, method: str, params: dict[str, Any], *, after: str = ""
    ) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """The events of a stream, each with its id ("" for none)."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"A2A-Version": "1.0", "Accept": "text/event-stream"}
        if after:
            headers["Last-Event-ID"] = after
        async with self.http.stream("POST", self.url, json=body, headers=headers) as answer:
            if "event-stream" not in answer.headers["content-type"]:
                raise Refusal(json.loads(await answer.aread())["error"])
            number = ""
            async for line in answer.aiter_lines():
                if line.startswith("id:"):
                    number = line[3:].strip()
                elif line.startswith("data:"):
                    record = json.loads(line[5:])
                    if "error" in record:
                        raise Refusal(record["error"])
                    yield number, record["result"]
                    number = ""

    def subscribe(
        self, task: str, *, after: str = ""
    ) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        return self.stream("SubscribeToTask", {"id": task}, after=after)
