"""A2A over gRPC: each call passes the guard, gate and limits of a request over HTTP, and is done by the same parts.

The server is the library's; it needs the extra `grpc`, so nothing of it is imported before a setting asks for it.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import MutableMapping
from contextlib import AsyncExitStack
from typing import Any

from postroom.control.a2a.door import addressed
from postroom.control.a2a.operations import CHANGING
from postroom.control.a2a.place import read_tenant
from postroom.control.app import Installation
from postroom.control.certificate import CertificateKeeper
from postroom.control.endpoints import Endpoints, bracketed
from postroom.control.http_protocol import ABORT
from postroom.control.org_router import ORGS, OrgRouter, Receive, Scope, Send
from postroom.errors import (
    InvalidInput,
    PortTaken,
    PostroomError,
    Unauthorized,
)
from postroom.observe import get_logger
from postroom.protocol.limits import MAX_BODY
from postroom.settings import DEFAULT_GRPC_PORT, DEFAULT_ORG
from postroom_a2a.http.errors import status_of
from postroom_a2a.operations import Incoming, Perform
from postroom_a2a.rpc import RpcError

log = get_logger(__name__)

ENDED = "the API key is not valid any more"


async def open_grpc(
    installation: Installation,
    endpoints: Endpoints,
    certificate: CertificateKeeper | None,
    base: str,
    stack: AsyncExitStack,
) -> None:
    """Serve A2A over gRPC where the settings say, if they do; `stack` ends it.

    Args:
        base: URL of the HTTP API, for the cards.

    Raises:
        PortTaken, InvalidInput: nothing can listen there.
    """
    wanted = endpoints.grpc
    if wanted is None:
        return
    server_of: Any = await asyncio.to_thread(_server)
    port = DEFAULT_GRPC_PORT if wanted.port is None else wanted.port
    door = GrpcDoor(installation.router, base)
    tls = certificate if endpoints.grpc_tls else None
    address = f"{bracketed(wanted.address)}:{port}"
    made = server_of(
        door.perform,
        address,
        certificate=tls.pem if tls is not None else None,
        most_bytes=MAX_BODY,
        greet=door.greet,
    )
    try:
        server = await stack.enter_async_context(made)
    except InvalidInput as error:
        raise PortTaken(
            f"cannot serve gRPC at {address}", remedy="choose another, or port 0 for any free one"
        ) from error
    place = installation.grpc
    shown = tls.certificate if tls is not None else None
    place.near, place.far = endpoints.grpc_addresses(server.port, shown)
    log.info("A2A over gRPC at %s", ", ".join((place.near, *place.far)))


def _server() -> Any:
    # gRPC stops its threads around each fork otherwise, for a child that would call gRPC: none of ours does.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    return importlib.import_module("postroom_a2a").GrpcServer


class GrpcDoor:
    """Lets calls through to the organisation that their tenant names.

    Args:
        base: URL of the HTTP API, for the cards.
    """

    def __init__(self, router: OrgRouter, base: str) -> None:
        self._router = router
        self._scheme, _, self._host = base.partition("://")

    async def greet(self, incoming: Incoming) -> None:
        """See `postroom_a2a.operations.Greet`: keys of every organisation are known to the default one."""
        door, _ = self._router.calls(DEFAULT_ORG)
        await door.greet(self._scope(incoming, DEFAULT_ORG))

    async def perform(self, incoming: Incoming, perform: Perform) -> None:
        """See `postroom_a2a.operations.Door`."""
        org, ref = read_tenant(incoming.tenant)
        if not self._router.performs(org):  # the default one says that nobody is called so
            org, ref = DEFAULT_ORG, addressed(ref, org)
        door, guard = self._router.calls(org)

        async def serve(scope: Scope, _receive: Receive, send: Send) -> None:
            try:
                await door.perform(scope, ref, incoming.method, perform)
            except (PostroomError, RpcError) as error:
                status, _ = status_of(error)
                await send({"type": "http.response.start", "status": status, "headers": []})
                raise
            await send({"type": "http.response.start", "status": 200, "headers": []})

        await guard.serve(self._scope(incoming, org), _nothing, _nowhere, serve, _refused)

    def _scope(self, incoming: Incoming, org: str) -> Scope:
        """The request as ASGI would show it; one that only reads is a GET, so that it ends with its key."""
        values = [(b"host", self._host.encode())]
        values += [(b"authorization", each.encode()) for each in incoming.authorization]
        values += [
            (name.encode(), value.encode("latin-1", "replace"))
            for name, value in incoming.metadata.items()
            if name not in {"authorization", "host"}
        ]
        return {
            "type": "http",
            "method": "POST" if incoming.method in CHANGING else "GET",
            "scheme": self._scheme,
            "path": incoming.path,
            "root_path": "" if org == DEFAULT_ORG else ORGS + org,
            "query_string": b"",
            "headers": values,
            "client": (incoming.peer, 0) if incoming.peer else None,
            ABORT: lambda: incoming.end(Unauthorized(ENDED)),
        }


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


async def _nowhere(_message: MutableMapping[str, Any]) -> None:
    pass


async def _refused(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise Unauthorized(ENDED)
