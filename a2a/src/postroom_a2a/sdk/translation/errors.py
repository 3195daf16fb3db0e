"""The errors of A2A, between the SDK's classes and the error of a response (code, message, data)."""

from __future__ import annotations

import json
from typing import Any

from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError

from postroom_a2a.rpc import DOMAIN, ERROR_INFO, Code, RpcError
from postroom_a2a.sdk.translation.table import Dialect

_LEGACY = frozenset(Code) - {Code.EXTENSION_SUPPORT_REQUIRED, Code.VERSION_NOT_SUPPORTED}
"""The codes for a peer of A2A 0.3; SERVER_BUSY is in JSON-RPC's own range, which every version has."""

_NAMED: dict[int, Code] = {int(code): code for code in Code}
_KINDS: dict[int, type[A2AError]] = {code: kind for kind, code in JSON_RPC_ERROR_CODE_MAP.items()}


def rpc_error(error: A2AError, dialect: Dialect) -> RpcError:
    """The error for a response. In 1.0 an object as `data` becomes the metadata of an ErrorInfo, as in the SDK."""
    code = _code_of(error)
    said = RpcError(_NAMED.get(code, code), str(error))
    data = _json(error.data)
    if dialect.version == "0.3":
        said.plain = True
        said.data = data
        if code not in _LEGACY:
            said.code = Code.INTERNAL_ERROR
    elif not isinstance(data, dict):
        said.data = data
    elif type(error) in JSON_RPC_ERROR_CODE_MAP:
        said.data = _json(build_error_details(error))
    else:
        reason = said.code.name if isinstance(said.code, Code) else "UNKNOWN_ERROR"
        info = {"@type": ERROR_INFO, "reason": reason, "domain": DOMAIN, "metadata": data}
        said.data = [info]
    return said


def _json(data: Any) -> Any:
    """An agent's own data as JSON; a value without a form in JSON becomes text."""
    try:
        return json.loads(json.dumps(data, default=str, skipkeys=True))
    except (ValueError, RecursionError):
        return None


def _code_of(error: A2AError) -> int:
    for kind in type(error).__mro__:
        if issubclass(kind, A2AError) and kind in JSON_RPC_ERROR_CODE_MAP:
            return JSON_RPC_ERROR_CODE_MAP[kind]
    code = getattr(error, "code", None)  # of an error that a peer answered with, passed on
    return code if isinstance(code, int) else Code.INTERNAL_ERROR


def a2a_error(error: RpcError) -> A2AError:
    """What a client raises for an answered error: the SDK's type for the code, where it has one.

    Returns:
        Else `ServerBusyError`, or an `UnknownCodeError` that keeps the code. `data` is the metadata of an ErrorInfo
        where that is all there is, else as it came.
    """
    # Imported late: this loads the SDK's client, which a server has no use for.
    from postroom_a2a.sdk.errors import ServerBusyError, UnknownCodeError

    data = _data_of(error.data)
    kind = _KINDS.get(error.code)
    if kind is not None:
        return kind(error.message or None, data)
    if error.code == Code.SERVER_BUSY:
        return ServerBusyError(error.message or None, data)
    return UnknownCodeError(int(error.code), error.message, data)


def _data_of(data: Any) -> Any:
    """The data of an SDK error: the metadata of a lone ErrorInfo, else the peer's data."""
    if not isinstance(data, list):
        return data
    infos = [each for each in data if isinstance(each, dict) and each.get("@type") == ERROR_INFO]
    if len(infos) == 1 and infos[0].get("domain") == DOMAIN:
        return infos[0].get("metadata") or None
    return data
