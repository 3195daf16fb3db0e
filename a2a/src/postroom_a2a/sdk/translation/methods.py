"""Which operation of which version a method names; no name means two."""

from __future__ import annotations

from postroom_a2a.sdk.translation.operations import OPERATIONS, Dialect, Operation
from postroom_a2a.sdk.translation.v03 import V03
from postroom_a2a.sdk.translation.v10 import V10

METHODS: dict[str, tuple[Operation, Dialect]] = {
    **{operation.name: (operation, V10) for operation in OPERATIONS.values()},
    **{operation.legacy: (operation, V03) for operation in OPERATIONS.values() if operation.legacy},
}
"""Every method of both versions."""


def operation_of(method: str) -> tuple[Operation, Dialect] | None:
    """The operation that `method` names and the version it is of; None for no method of A2A."""
    return METHODS.get(method)
