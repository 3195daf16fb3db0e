"""An agent of the SDK on core NATS: any `RequestHandler` served on a subject, in A2A 1.0 and 0.3, JSON and protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from a2a import types
from a2a.auth.user import User

from postroom.a2a.nats.connection import Connection
from postroom.a2a.nats.labels import CORE, CORE_BINARY
from postroom.a2a.nats.serving import CoreOptions, CoreServer
from postroom.a2a.nats.subjects import core_url
from postroom.a2a.operations import Call
from postroom.a2a.sdk import SdkOperations, user_of

if TYPE_CHECKING:
    from a2a.server.request_handlers.request_handler import RequestHandler


class NatsA2AServer(CoreServer):
    """The server of an SDK handler: `async with NatsA2AServer(connection, subject=..., handler=...)`.

    Args:
        connection: open; of nats-py, or anything like it.
        subject: to serve, for example by `core_subject("echo")`.
        handler: of the SDK.
        user: who calls, as the handler is told; nobody unless `admit` has proof.
        options: as of `CoreServer`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        subject: str,
        handler: RequestHandler,
        user: Callable[[Call], User] = user_of,
        **options: Unpack[CoreOptions],
    ) -> None:
        super().__init__(connection, subject, SdkOperations(handler, user=user), **options)


def core_interfaces(subject: str) -> list[types.AgentInterface]:
    """What the card of an agent lists that a `NatsA2AServer` serves on `subject`; the fastest comes first."""
    url = core_url(subject)
    return [
        types.AgentInterface(url=url, protocol_binding=CORE_BINARY, protocol_version="1.0"),
        types.AgentInterface(url=url, protocol_binding=CORE, protocol_version="1.0"),
        types.AgentInterface(url=url, protocol_binding=CORE, protocol_version="0.3"),
    ]
