"""The Synadia Agent Protocol for NATS. It is not A2A: a prompt goes in, chunks of text come out, there is no task."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import perf_counter

import nats
from synadia_ai.agent_service import (  # ty: ignore[import-not-found]
    AgentService,
    PromptStream,
)
from synadia_ai.agents import (  # ty: ignore[import-not-found]
    Agent,
    Agents,
    Envelope,
    ResponseChunk,
)

from benchmarks.a2a.peers.kinds import Options
from benchmarks.a2a.peers.sdk import EVENTS


class PromptCaller:
    """Prompts of one agent."""

    def __init__(self, found: Agent) -> None:
        self._agent = found

    async def unary(self, content: str) -> None:
        """One prompt that is answered with its text."""
        chunks = [each.text async for each in self._agent.prompt(content) if _is_text(each)]
        if chunks != [content]:
            raise ValueError("another answer came back")

    async def stream(self, content: str) -> float:
        """One prompt that is answered with four chunks."""
        begin, first, count = perf_counter(), 0.0, 0
        async for each in self._agent.prompt(content):
            if _is_text(each):
                first = first or perf_counter() - begin
                count += 1
        if count != EVENTS:
            raise ValueError(f"{count} chunks instead of {EVENTS}")
        return first


def _is_text(chunk: object) -> bool:
    return isinstance(chunk, ResponseChunk)


async def _answer(envelope: Envelope, stream: PromptStream) -> None:
    for _ in range(EVENTS if envelope.prompt.startswith("stream ") else 1):
        await stream.send(envelope.prompt)


@asynccontextmanager
async def serve(options: Options) -> AsyncGenerator[str]:
    """Host an agent."""
    async with await nats.connect(options.bus) as connection:
        service = AgentService(
            agent="instant", owner="benchmarks", session_name=options.name, nc=connection
        )
        service.on_prompt(_answer)
        await service.start()
        try:
            yield options.name
        finally:
            await service.stop()


@asynccontextmanager
async def connect(options: Options) -> AsyncGenerator[PromptCaller]:
    """Discover the agent."""
    async with await nats.connect(options.bus) as connection:
        agents = Agents(nc=connection)
        try:
            found = await agents.discover()
            yield PromptCaller(next(each for each in found if each.session_name == options.address))
        finally:
            await agents.close()
