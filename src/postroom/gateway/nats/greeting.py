"""INFO and CONNECT as the gateway passes them on. Pure.

INFO keeps only what a client needs: so the client learns no address, whatever later servers add. CONNECT keeps what
a worker may say of itself and gets the gateway's signature, without which the server refuses the credential (NATS,
ADR-55).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from postroom.errors import InvalidInput, PostroomError, Unauthorized
from postroom.identity import jwt

_TOLD = (
    "auth_required",
    "client_id",
    "headers",
    "jetstream",
    "ldm",
    "max_payload",
    "nonce",
    "proto",
    "version",
)
_MASKED = {"server_id": "postroom", "server_name": "postroom"}
_CLUSTER = {"cluster": "postroom"}

_CLAIMED: dict[str, type] = {
    "echo": bool,
    "headers": bool,
    "jwt": str,
    "lang": str,
    "name": str,
    "no_responders": bool,
    "pedantic": bool,
    "protocol": int,
    "sig": str,
    "verbose": bool,
    "version": str,
}

_MAX_NAME = 256


def rewritten_info(info: dict[str, Any], *, alone: bool = True) -> bytes:
    """The INFO line for the sandbox.

    Args:
        alone: whether the bus has no other server; the client need not leave this one then.
    """
    told = _MASKED | {name: info[name] for name in _TOLD if name in info}
    if not alone:
        told |= _CLUSTER
    return b"INFO " + json.dumps(told, separators=(",", ":")).encode() + b"\r\n"


def rewritten_connect(
    options: bytes, *, own: str, nonce: str, sign: Callable[[bytes], bytes]
) -> bytes:
    """The CONNECT line for the server.

    Args:
        own: uid of the worker whose door it is.
        nonce: of the server's INFO.

    Raises:
        InvalidInput: a client does not send such options.
        Unauthorized: no credential, or another worker's.
    """
    said = _options(options)
    kept = {}
    for name, kind in _CLAIMED.items():
        value = said.get(name)
        if value is None:
            continue
        if type(value) is not kind:
            raise InvalidInput(f"{name} in CONNECT has the wrong type")
        kept[name] = value[:_MAX_NAME] if name in _SHORT else value
    try:
        name = jwt.decode(kept.get("jwt", ""))["name"]
    except (PostroomError, KeyError, RecursionError) as error:
        raise Unauthorized("CONNECT carries no credential") from error
    if name != own:
        raise Unauthorized("the credential is not this worker's")
    signature = base64.urlsafe_b64encode(sign(nonce.encode())).rstrip(b"=").decode("ascii")
    kept["proxy_sig"] = signature
    return b"CONNECT " + json.dumps(kept, separators=(",", ":")).encode() + b"\r\n"


_SHORT = frozenset({"lang", "name", "version"})


def _options(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the options in CONNECT are not JSON") from error
    if not isinstance(said, dict):
        raise InvalidInput("the options in CONNECT are not a JSON object")
    return said


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found
