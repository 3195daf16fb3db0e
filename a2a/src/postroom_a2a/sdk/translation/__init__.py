"""A2A 1.0 and 0.3 on the wire, from and to the SDK's protobuf types: the one place bound to versions of A2A."""

from postroom_a2a.sdk.translation.table import OPERATIONS, Dialect, Operation, a2a_error, rpc_error
from postroom_a2a.sdk.translation.versions import V03, V10

__all__ = [
    "METHODS",
    "OPERATIONS",
    "V03",
    "V10",
    "Dialect",
    "Operation",
    "a2a_error",
    "operation_of",
    "rpc_error",
]

METHODS: dict[str, tuple[Operation, Dialect]] = {
    **{operation.name: (operation, V10) for operation in OPERATIONS.values()},
    **{operation.legacy: (operation, V03) for operation in OPERATIONS.values() if operation.legacy},
}
"""Every method of both versions; no two share a name."""


def operation_of(method: str) -> tuple[Operation, Dialect] | None:
    """The operation and version of `method`; None for an unknown method."""
    return METHODS.get(method)
