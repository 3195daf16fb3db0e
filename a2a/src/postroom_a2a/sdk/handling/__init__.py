"""Our own request handler of the A2A SDK: the same operations and rules as its default one, on a short path."""

from postroom_a2a.sdk.handling.handler import AgentRequestHandler
from postroom_a2a.sdk.handling.memory import MemoryTaskStore

__all__ = ["AgentRequestHandler", "MemoryTaskStore"]
