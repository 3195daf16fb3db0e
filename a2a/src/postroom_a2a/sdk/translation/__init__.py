"""A2A 1.0 and 0.3 on the wire, from and to the SDK's protobuf types: the one place bound to versions of A2A."""

from postroom_a2a.sdk.translation.errors import a2a_error, rpc_error
from postroom_a2a.sdk.translation.methods import operation_of
from postroom_a2a.sdk.translation.operations import OPERATIONS, Dialect, Operation
from postroom_a2a.sdk.translation.v03 import V03
from postroom_a2a.sdk.translation.v10 import V10

__all__ = [
    "OPERATIONS",
    "V03",
    "V10",
    "Dialect",
    "Operation",
    "a2a_error",
    "operation_of",
    "rpc_error",
]
