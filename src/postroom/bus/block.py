"""The configuration that an operator's own nats-server needs to carry a post room."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from postroom.protocol.limits import MAX_CONTROL_LINE, MAX_PAYLOAD

MAX_STORE = 1024**4
"""Bytes on disk: a bound for the sum of the limits of all streams, not for their use."""


def configuration_block(
    *, operator_jwt: str, system_account: str, system_jwt: str, proxies: Sequence[str], folder: str
) -> dict[str, Any]:
    """The required configuration, the same for each server of a cluster. It holds no private key.

    Args:
        system_account: public key of the account through which Postroom pushes the others and asks the servers.
        system_jwt: its JWT; a server must have it from the start.
        proxies: public keys of the gateway.
        folder: of the server, for accounts and streams.
    """
    return {
        "operator": operator_jwt,
        "system_account": system_account,
        "resolver": {
            "type": "full",
            "dir": f"{folder}/accounts",
            "allow_delete": True,
            "interval": "2m",
        },
        "resolver_preload": {system_account: system_jwt},
        "proxies": {"trusted": [{"key": proxy} for proxy in proxies]},
        "jetstream": {
            "store_dir": f"{folder}/store",
            "max_file_store": MAX_STORE,
            "sync_interval": "always",
        },
        "max_control_line": MAX_CONTROL_LINE,
        "max_payload": MAX_PAYLOAD,
    }


_REASONS = {
    "operator": "The server takes the accounts of this operator. Accounts of another operator cannot live beside them.",
    "resolver": "Accounts are pushed by the post room; each server keeps them and shares them with the others.",
    "proxies": "The gateway: workers connect through it alone.",
    "jetstream": "An acknowledgement means disk. The store's bound is for the sum of all limits, not for use.",
    "max_control_line": "A credential with many projects does not fit the default of 4 KiB.",
}


def written(block: Mapping[str, Any]) -> str:
    """`block` as a nats-server's configuration file, with reasons as comments."""
    lines = [
        "# For each nats-server that carries this post room: include it in the server's configuration.",
        "# There is no private key in it. The server's address, its TLS and its cluster are yours to say.",
    ]
    for name, value in block.items():
        if name in _REASONS:
            lines += ["", f"# {_REASONS[name]}"]
        # The server reads JSON's values as its own, except \u escapes.
        lines.append(f"{name}: {json.dumps(value, indent=2, ensure_ascii=False)}")
    return "\n".join(lines)
