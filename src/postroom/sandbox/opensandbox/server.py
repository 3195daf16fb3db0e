"""The OpenSandbox server through its official SDK, with Postroom's deadlines, bounds and errors.

The egress control of a container fails open: without the right to change the network it warns and enforces nothing, and
in its mode `dns` an address that nobody looked up stays reachable. So Postroom reads its report before anything enters
the container, and the self-test tries it from inside.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

from postroom.errors import SandboxUnavailable
from postroom.observe import get_logger
from postroom.sandbox.opensandbox.remote import ROOM_LABEL, RUN_LABEL, Remote
from postroom.sandbox.port import Limits

if TYPE_CHECKING:
    from opensandbox import Sandbox
    from opensandbox.config import ConnectionConfig
    from opensandbox.models.sandboxes import NetworkPolicy

log = get_logger(__name__)

INSTALL = "pip install 'postroom[opensandbox]'"
PAGE = 100
MIB = 1024 * 1024
DEFAULT_MEMORY = 2048 * MIB

ENFORCING = "dns+nft"
"""The one mode that holds back packets, and not names alone."""

REMEDY = "run OpenSandbox with its egress control in the mode dns+nft, and NET_ADMIN for it"


def policy(host: str) -> NetworkPolicy:
    """A policy that allows the gateway alone."""
    from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule

    rule = NetworkRule(action="allow", target=host)
    return NetworkPolicy(default_action="deny", egress=[rule])


async def read_back(sandbox: Sandbox, remote: Remote) -> None:
    """Ask the egress control what it enforces.

    Raises:
        SandboxUnavailable: not exactly `policy`, or not in the mode that holds.
    """
    import httpx
    from opensandbox.api.egress import Client
    from opensandbox.api.egress.api.policy import get_policy
    from opensandbox.api.egress.models.policy_status_response import PolicyStatusResponse
    from opensandbox.constants import DEFAULT_EGRESS_PORT

    config = sandbox.connection_config
    endpoint = await sandbox.get_endpoint(DEFAULT_EGRESS_PORT)
    # The SDK's own call omits the mode.
    client = httpx.AsyncClient(
        base_url=f"{config.protocol}://{endpoint.endpoint}",
        headers=endpoint.build_request_headers(config),
        timeout=remote.request,
        transport=config.transport,
    )
    # Not closed: that would close the sandbox's transport.
    answer = await get_policy.asyncio_detailed(
        client=Client(base_url=str(client.base_url)).set_async_httpx_client(client)
    )
    said = answer.parsed
    if not isinstance(said, PolicyStatusResponse):
        raise SandboxUnavailable(
            f"the egress control does not say what it enforces (status {int(answer.status_code)})",
            remedy=REMEDY,
        )
    if said.enforcement_mode != ENFORCING:
        raise SandboxUnavailable(
            f"the egress control does not hold packets back: its mode is {str(said.enforcement_mode) or '?'}",
            remedy=REMEDY,
        )
    _compare(said.to_dict().get("policy"), remote.gateway_host)


def _compare(found: object, host: str) -> None:
    rules = found.get("egress") if isinstance(found, dict) else None
    default = found.get("defaultAction") if isinstance(found, dict) else None
    allowed = {rule.get("target") for rule in rules or () if rule.get("action") == "allow"}
    if default != "deny" or allowed != {host}:
        raise SandboxUnavailable(
            "the egress policy is not the one that Postroom has set: "
            f"default {default}, open to {', '.join(sorted(map(str, allowed))) or 'nothing'}",
            remedy=REMEDY,
        )


async def load() -> ModuleType:
    """The SDK, imported in a thread since that takes over a second.

    Raises:
        SandboxUnavailable: the SDK is not installed.
    """
    try:
        return await asyncio.to_thread(importlib.import_module, "opensandbox")
    except ImportError as error:
        raise SandboxUnavailable("the OpenSandbox SDK is not installed", remedy=INSTALL) from error


@contextmanager
def sdk_errors(what: str) -> Generator[None]:
    """Turn an error of the SDK into a `SandboxUnavailable` that says that `what` failed."""
    import httpx
    from opensandbox.exceptions import SandboxException

    try:
        yield
    except (SandboxException, httpx.HTTPError, OSError, TimeoutError) as error:
        # ValueError and the like are Postroom's own. The SDK's text holds status and message, never the key.
        raise SandboxUnavailable(
            f"{what} failed: {error or type(error).__name__}",
            remedy="see the log of the OpenSandbox server",
        ) from error


def connection(remote: Remote) -> ConnectionConfig:
    """A connection of its own, closed by `Sandbox.close` or `SandboxManager.close` with `close`."""
    import httpx
    from opensandbox.config import ConnectionConfig
    from opensandbox.transport import RetryAsyncTransport, RetryPolicy

    from postroom.sandbox.opensandbox.bounded import BoundedTransport

    scheme, _, domain = remote.url.partition("://")
    inner = BoundedTransport(httpx.AsyncHTTPTransport())
    return ConnectionConfig(
        api_key=remote.key or None,
        domain=domain,
        protocol=scheme,
        request_timeout=timedelta(seconds=remote.request),
        transport=RetryAsyncTransport(inner, RetryPolicy(), owns_inner=True),
        disable_metrics=True,
    )


async def close(config: ConnectionConfig) -> None:
    """Close a connection; the SDK does not close one that it was given."""
    if config.transport is not None:
        await config.transport.aclose()


async def create(remote: Remote, limits: Limits) -> Sandbox:
    """A container with the gateway as its only way out, read back before anything enters it.

    Args:
        limits: its memory and processor; defaults where they are None.

    Raises:
        SandboxUnavailable: no container, or its egress control does not hold.
    """
    sdk = await load()
    config = connection(remote)
    try:
        with sdk_errors("making a sandbox"):
            sandbox: Sandbox = await sdk.Sandbox.create(
                remote.image,
                timeout=timedelta(seconds=remote.lifetime),
                ready_timeout=timedelta(seconds=remote.ready),
                metadata={ROOM_LABEL: remote.room, RUN_LABEL: remote.run},
                resource={
                    "cpu": f"{10 * (limits.cpu_percent or 100)}m",
                    "memory": f"{(limits.memory or DEFAULT_MEMORY) // MIB}Mi",
                },
                network_policy=policy(remote.gateway_host),
                secure_access=True,
                connection_config=config,
            )
    except BaseException:
        await close(config)
        raise
    try:
        with sdk_errors("reading the sandbox's egress policy"):
            await read_back(sandbox, remote)
    except BaseException:
        await remove(sandbox, remote.request)
        raise
    return sandbox


async def remove(sandbox: Sandbox, deadline: float) -> None:
    """Remove a container. A server that cannot be reached removes it itself, at the end of the lifetime."""
    try:
        with sdk_errors("removing a sandbox"):
            async with asyncio.timeout(deadline):
                await sandbox.kill()
    except SandboxUnavailable as error:
        if not is_gone(error.__cause__):
            log.warning("%s; it expires by itself", error.message)
    finally:
        await close(sandbox.connection_config)


def is_gone(error: BaseException | None) -> bool:
    """Whether the server says that there is no such sandbox or command."""
    return getattr(error, "status_code", None) == 404


async def remove_stale(remote: Remote) -> int:
    """Remove the sandboxes that earlier runs of this post room have left; return their number.

    Raises:
        SandboxUnavailable: the server does not answer, or refuses the key.
    """
    await load()
    from opensandbox.models.sandboxes import SandboxFilter

    removed = 0
    with sdk_errors("looking for sandboxes"):
        async with _manager(remote) as manager, asyncio.timeout(2 * remote.request):
            page = 1
            stale: list[str] = []
            while True:
                wanted = SandboxFilter(
                    metadata={ROOM_LABEL: remote.room}, page=page, page_size=PAGE
                )
                found = await manager.list_sandbox_infos(wanted)
                stale += [
                    info.id
                    for info in found.sandbox_infos
                    # The server applies the filter; this check keeps foreign sandboxes safe from it.
                    if (info.metadata or {}).get(ROOM_LABEL) == remote.room
                    and (info.metadata or {}).get(RUN_LABEL) != remote.run
                ]
                if not found.pagination.has_next_page:
                    break
                page += 1
            for sandbox_id in stale:
                await _remove(manager, sandbox_id)
                removed += 1
    return removed


async def _remove(manager: Any, sandbox_id: str) -> None:
    from opensandbox.exceptions import SandboxApiException

    try:
        await manager.kill_sandbox(sandbox_id)
    except SandboxApiException as error:
        if not is_gone(error):
            raise


@asynccontextmanager
async def _manager(remote: Remote) -> AsyncGenerator[Any]:
    from opensandbox import SandboxManager

    config = connection(remote)
    try:
        yield await SandboxManager.create(config)
    finally:
        await close(config)
