"""The control plane's side of a worker's events and of what people say to its agent, as little as tests need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.sidecar.worker_rig import PATIENCE


@dataclass
class Control:
    """Keeps the events, each number of a run once, and hands out what people say."""

    port: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    posts: int = 0
    status: int = 202
    """Other than 202: what it answers to a report, which it does not take."""
    lose: int = 0
    """So many answers to reports that it took are lost on their way."""
    said: list[dict[str, Any]] = field(default_factory=list)
    taken: int = 0
    """The id up to which the sidecar has taken what was said."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        """For the sidecar's configuration."""
        return f"http://127.0.0.1:{self.port}"

    def kinds(self) -> list[str]:
        """Kinds of all events."""
        return [event["type"] for event in self.events]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Events of one kind."""
        return [event for event in self.events if event["type"] == kind]

    async def until(self, happened: Callable[[], Any]) -> Any:
        """Wait until `happened()` is true, looked at after each report."""
        async with asyncio.timeout(PATIENCE), self.changed:
            while not (found := happened()):
                await self.changed.wait()
            return found

    async def request(self, number: int = 0) -> dict[str, Any]:
        """Wait for the control request with that place."""
        await self.until(lambda: len(self.of("control_request")) > number)
        return self.of("control_request")[number]

    async def say(self, **record: Any) -> None:
        """Say something to the agent."""
        async with self.changed:
            self.said.append({"id": len(self.said) + 1, "by": {"nick": "ann"}, **record})
            self.changed.notify_all()

    async def decide(self, request: str, decision: str, **more: Any) -> None:
        """Answer an approval."""
        await self.say(type="control_response", request=request, decision=decision, **more)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on one connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            fields = dict(
                line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
            )
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            status, answer = await self._answer(method, target, body)
            if status:
                data = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(data)))
                writer.write(data)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sidecar has gone
        finally:
            writer.close()

    async def _answer(self, method: str, target: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if method == "GET":
            asked = parse_qs(urlsplit(target).query)
            return 200, await self._pending(int(asked["after_id"][0]), float(asked["wait"][0]))
        self.posts += 1
        if self.status != 202:
            return self.status, {}
        report = json.loads(body)
        async with self.changed:
            for number, event in enumerate(report["events"], start=report["first"]):
                if number == self.numbers.get(report["run"], 0) + 1:
                    self.numbers[report["run"]] = number
                    self.events.append(event)
            self.changed.notify_all()
        if self.lose:
            self.lose -= 1
            return 0, {}
        return 202, {"stored": [], "next": self.numbers.get(report["run"], 0) + 1}

    async def _pending(self, after: int, wait: float) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [record for record in self.said if record["id"] > after]

        async with self.changed:
            self.taken = after
            self.changed.notify_all()
            try:
                async with asyncio.timeout(wait):
                    await self.changed.wait_for(found)
            except TimeoutError:
                pass
            records = found()
        return {"records": records, "next": records[-1]["id"] if records else after}


@asynccontextmanager
async def control_plane(found: Control | None = None) -> AsyncGenerator[Control]:
    """It listens on a port of its own, or again on the one that it had."""
    found = found or Control()
    server = await asyncio.start_server(found.serve, "127.0.0.1", found.port)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
