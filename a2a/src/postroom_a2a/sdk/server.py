"""An agent of the SDK on NATS: any `RequestHandler` served on a subject, in A2A 1.0 and 0.3, JSON and protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from a2a.auth.user import User

from a2a import types
from postroom_a2a.binding.subjects import (
    CORE,
    CORE_BINARY,
    DURABLE,
    DURABLE_BINARY,
    core_url,
    durable_url,
    served,
)
from postroom_a2a.durable.jobs import lost_error
from postroom_a2a.durable.performing import DurableOptions
from postroom_a2a.durable.server import DurableServer
from postroom_a2a.errors import InvalidInput
from postroom_a2a.live.serving import CoreOptions, CoreServer
from postroom_a2a.nats.port import Connection
from postroom_a2a.operations import Call
from postroom_a2a.rpc import RpcError
from postroom_a2a.sdk.operations import SdkOperations, user_of

if TYPE_CHECKING:
    from a2a.server.request_handlers.request_handler import RequestHandler

    from postroom_a2a.sdk.references import LargeContent


class NatsA2AServer(CoreServer):
    """The server of an SDK handler: `async with NatsA2AServer(connection, subject=..., handler=...)`.

    Args:
        connection: an open one of ours; in place of one of nats-py the server opens one of ours.
        subject: for example by `core_subject("echo")`.
        user: gives the handler the user of a call; unauthenticated unless `admit` has proof.
        content: stores large content that a caller takes by reference; None sends all content along.

    Raises:
        InvalidInput: the subject cannot be served (a URL, a request subject), or `concurrency` is below 1.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        subject: str,
        handler: RequestHandler,
        user: Callable[[Call], User] = user_of,
        content: LargeContent | None = None,
        **options: Unpack[CoreOptions],
    ) -> None:
        operations = SdkOperations(handler, user=user, content=content)
        super().__init__(connection, _open(subject, "requests", options), operations, **options)


def core_interfaces(subject: str) -> list[types.AgentInterface]:
    """The interfaces for the card of an agent that a `NatsA2AServer` serves on `subject`, the fastest first."""
    url = core_url(subject)
    return [
        types.AgentInterface(url=url, protocol_binding=CORE_BINARY, protocol_version="1.0"),
        types.AgentInterface(url=url, protocol_binding=CORE, protocol_version="1.0"),
        types.AgentInterface(url=url, protocol_binding=CORE, protocol_version="0.3"),
    ]


class JetStreamA2AServer(DurableServer):
    """The server of stored requests to an SDK handler; options as in `NatsA2AServer`.

    When another process gets the request of a crashed one, the task fails, and the failed task answers the request.
    That needs an `AgentRequestHandler`. A handler of the SDK cancels the task, and forgets one that it answered before
    its end.

    Args:
        subject: for example by `request_subject("echo")`.

    Raises:
        InvalidInput: the subject cannot be served (a URL, a wildcard, a core subject), or `concurrency` is below 1.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        subject: str,
        handler: RequestHandler,
        user: Callable[[Call], User] = user_of,
        content: LargeContent | None = None,
        **options: Unpack[DurableOptions],
    ) -> None:
        operations = SdkOperations(handler, user=user, content=content)
        subject = _open(subject, "rpc", options)

        async def lost(call: Call) -> bytes | RpcError:
            return await operations.lost(call) or lost_error(call)

        options.setdefault("lost", lost)
        options.setdefault("at_work", operations.at_work)
        super().__init__(connection, subject, operations, **options)


def durable_interfaces(subject: str) -> list[types.AgentInterface]:
    """The interfaces for the card of an agent that a `JetStreamA2AServer` serves on `subject`, the fastest first."""
    url = durable_url(subject)
    return [
        types.AgentInterface(url=url, protocol_binding=DURABLE_BINARY, protocol_version="1.0"),
        types.AgentInterface(url=url, protocol_binding=DURABLE, protocol_version="1.0"),
        types.AgentInterface(url=url, protocol_binding=DURABLE, protocol_version="0.3"),
    ]


def _open(subject: str, ending: str, options: CoreOptions | DurableOptions) -> str:
    """`subject`, if it can be served with these options."""
    if options.get("concurrency", 1) < 1:
        raise InvalidInput(
            "concurrency has to be 1 or more: with less, the server would refuse every call"
        )
    return served(
        subject, ending, "JetStreamA2AServer" if ending == "requests" else "NatsA2AServer"
    )
