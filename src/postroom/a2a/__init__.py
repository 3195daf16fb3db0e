"""The A2A protocol on the bus. Usable alone, with no control plane.

The names below are loaded when they are first used, so that a program loads the A2A SDK only if it asks for a part
that is built on it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom.a2a.handling import AgentRequestHandler, MemoryTaskStore
    from postroom.a2a.nats.calling import Caller, CoreCaller
    from postroom.a2a.nats.cardregistry import CardRegistry, open_registry
    from postroom.a2a.nats.durable.client import DurableCaller
    from postroom.a2a.nats.durable.server import DurableServer
    from postroom.a2a.nats.durable.streams import Streams
    from postroom.a2a.nats.factory import register
    from postroom.a2a.nats.server import (
        JetStreamA2AServer,
        NatsA2AServer,
        core_interfaces,
        durable_interfaces,
    )
    from postroom.a2a.nats.serving import CoreServer
    from postroom.a2a.nats.subjects import core_subject, request_subject, subject_of
    from postroom.a2a.nats.taskstore import KvTaskStore
    from postroom.a2a.nats.transport import NatsA2ATransport
    from postroom.a2a.nats.wire import connect
    from postroom.a2a.operations import Call, Operations
    from postroom.a2a.references import LargeContent
    from postroom.a2a.rpc import Code, RpcError
    from postroom.a2a.sdk import SdkOperations

__all__ = [
    "AgentRequestHandler",
    "Call",
    "Caller",
    "CardRegistry",
    "Code",
    "CoreCaller",
    "CoreServer",
    "DurableCaller",
    "DurableServer",
    "JetStreamA2AServer",
    "KvTaskStore",
    "LargeContent",
    "MemoryTaskStore",
    "NatsA2AServer",
    "NatsA2ATransport",
    "Operations",
    "RpcError",
    "SdkOperations",
    "Streams",
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
    "AgentRequestHandler": "handling",
    "Call": "operations",
    "Caller": "nats.calling",
    "CardRegistry": "nats.cardregistry",
    "Code": "rpc",
    "CoreCaller": "nats.calling",
    "CoreServer": "nats.serving",
    "DurableCaller": "nats.durable.client",
    "DurableServer": "nats.durable.server",
    "JetStreamA2AServer": "nats.server",
    "KvTaskStore": "nats.taskstore",
    "LargeContent": "references",
    "MemoryTaskStore": "handling",
    "NatsA2AServer": "nats.server",
    "NatsA2ATransport": "nats.transport",
    "Operations": "operations",
    "RpcError": "rpc",
    "SdkOperations": "sdk",
    "Streams": "nats.durable.streams",
    "connect": "nats.wire",
    "core_interfaces": "nats.server",
    "core_subject": "nats.subjects",
    "durable_interfaces": "nats.server",
    "open_registry": "nats.cardregistry",
    "register": "nats.factory",
    "request_subject": "nats.subjects",
    "subject_of": "nats.subjects",
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
