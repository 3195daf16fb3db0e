"""The egress control of a container: its policy, and its own report of it.

It fails open: without the right to change the network it warns and enforces nothing, and in its mode `dns` an address
that nobody looked up stays reachable. So Postroom reads its report before anything enters the container, and the
self-test tries it from inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.errors import SandboxUnavailable
from postroom.sandbox.opensandbox.remote import Remote

if TYPE_CHECKING:
    from opensandbox import Sandbox
    from opensandbox.models.sandboxes import NetworkPolicy

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
