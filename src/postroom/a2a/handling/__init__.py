"""Our own request handler of the A2A SDK: the same operations and rules as its default one, on a short path."""

from postroom.a2a.handling.handler import AgentRequestHandler
from postroom.a2a.handling.memory import MemoryTaskStore

__all__ = ["AgentRequestHandler", "MemoryTaskStore"]
