"""The A2A protocol on the bus. Usable alone, with no control plane.

The names below are loaded when they are first used, so that a program loads the A2A SDK only if it asks for a part
that is built on it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom_a2a.binding.subjects import core_subject, request_subject, subject_of
    from postroom_a2a.durable.client import DurableCaller
    from postroom_a2a.durable.server import DurableServer
    from postroom_a2a.durable.streams import Streams
    from postroom_a2a.http.client import A2AClient
    from postroom_a2a.http.client_attempts import Calling
    from postroom_a2a.live.calling import Caller, CoreCaller
    from postroom_a2a.live.serving import CoreServer
    from postroom_a2a.nats import connect
    from postroom_a2a.operations import Call, Operations
    from postroom_a2a.retry import RetryPolicy
    from postroom_a2a.rpc import Code, RpcError
    from postroom_a2a.sdk.card_registry import CardRegistry, open_registry
    from postroom_a2a.sdk.grpc import GrpcServer
    from postroom_a2a.sdk.handling import AgentRequestHandler, MemoryTaskStore
    from postroom_a2a.sdk.operations import SdkOperations
    from postroom_a2a.sdk.references import LargeContent
    from postroom_a2a.sdk.replicas import ReplicaOperations
    from postroom_a2a.sdk.server import (
        JetStreamA2AServer,
        NatsA2AServer,
        core_interfaces,
        durable_interfaces,
    )
    from postroom_a2a.sdk.surreal_taskstore import SurrealTaskStore, SurrealVersionedTaskStore
    from postroom_a2a.sdk.taskstore import KvTaskStore
    from postroom_a2a.sdk.transport import NatsA2ATransport, register

__all__ = [
    "A2AClient",
    "AgentRequestHandler",
    "Call",
    "Caller",
    "Calling",
    "CardRegistry",
    "Code",
    "CoreCaller",
    "CoreServer",
    "DurableCaller",
    "DurableServer",
    "GrpcServer",
    "JetStreamA2AServer",
    "KvTaskStore",
    "LargeContent",
    "MemoryTaskStore",
    "NatsA2AServer",
    "NatsA2ATransport",
    "Operations",
    "ReplicaOperations",
    "RetryPolicy",
    "RpcError",
    "SdkOperations",
    "Streams",
    "SurrealTaskStore",
    "SurrealVersionedTaskStore",
    "connect",
    "core_interfaces",
    "core_subject",
    "durable_interfaces",
    "open_registry",
    "register",
    "request_subject",
    "subject_of",
]

_MODULES = {
    "A2AClient": "http.client",
    "AgentRequestHandler": "sdk.handling",
    "Call": "operations",
    "Caller": "live.calling",
    "Calling": "http.client_attempts",
    "CardRegistry": "sdk.card_registry",
    "Code": "rpc",
    "CoreCaller": "live.calling",
    "CoreServer": "live.serving",
    "DurableCaller": "durable.client",
    "DurableServer": "durable.server",
    "GrpcServer": "sdk.grpc",
    "JetStreamA2AServer": "sdk.server",
    "KvTaskStore": "sdk.taskstore",
    "LargeContent": "sdk.references",
    "MemoryTaskStore": "sdk.handling",
    "NatsA2AServer": "sdk.server",
    "NatsA2ATransport": "sdk.transport",
    "Operations": "operations",
    "ReplicaOperations": "sdk.replicas",
    "RetryPolicy": "retry",
    "RpcError": "rpc",
    "SdkOperations": "sdk.operations",
    "Streams": "durable.streams",
    "SurrealTaskStore": "sdk.surreal_taskstore",
    "SurrealVersionedTaskStore": "sdk.surreal_taskstore",
    "connect": "nats",
    "core_interfaces": "sdk.server",
    "core_subject": "binding.subjects",
    "durable_interfaces": "sdk.server",
    "open_registry": "sdk.card_registry",
    "register": "sdk.transport",
    "request_subject": "binding.subjects",
    "subject_of": "binding.subjects",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
