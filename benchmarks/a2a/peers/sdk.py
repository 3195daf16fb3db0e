"""The SDK's client, over whatever transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import perf_counter

from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types import AgentCard

from benchmarks.a2a.peers import agent

EVENTS = 4
"""Of one stream: Task, working, artifact, completed."""


class SdkCaller:
    """Two clients of the SDK: one that asks for single answers, one that asks for streams."""

    def __init__(self, unary: Client, streaming: Client) -> None:
        self._unary = unary
        self._streaming = streaming

    async def unary(self, content: str) -> None:
        """One call."""
        wanted = content.partition(" ")[0]
        answers = [each async for each in self._unary.send_message(agent.request(content))]
        if len(answers) != 1 or not answers[0].HasField(wanted):
            raise ValueError(f"no {wanted} came back")

    async def stream(self, content: str) -> float:
        """One stream."""
        begin, first, count = perf_counter(), 0.0, 0
        async for _ in self._streaming.send_message(agent.request(content)):
            first = first or perf_counter() - begin
            count += 1
        if count != EVENTS:
            raise ValueError(f"{count} events instead of {EVENTS}")
        return first


@asynccontextmanager
async def connected(
    card: AgentCard, factory: Callable[[ClientConfig], ClientFactory] = ClientFactory
) -> AsyncGenerator[SdkCaller]:
    """Clients for the one interface of `card`, from `factory`."""
    bindings = [card.supported_interfaces[0].protocol_binding]
    unary = factory(ClientConfig(streaming=False, supported_protocol_bindings=bindings))
    streaming = factory(ClientConfig(streaming=True, supported_protocol_bindings=bindings))
    async with unary.create(card) as one, streaming.create(card) as other:
        yield SdkCaller(one, other)
