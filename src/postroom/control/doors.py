"""The gateway as one organisation sees it: what comes through its workers' doors reaches its own API."""

from __future__ import annotations

from pathlib import Path

from postroom.control.front import Front
from postroom.gateway.port import DoorSpec, GatewayProvider, GatewayStatistics


class OrgGateway:
    """`GatewayProvider` over the shared gateway.

    Args:
        gateway: of the post room.
        front: is told whose API each door leads to.
        org: the organisation.
    """

    def __init__(self, gateway: GatewayProvider, front: Front, org: str) -> None:
        self._gateway = gateway
        self._front = front
        self._org = org
        self._doors: set[str] = set()

    async def open_door(self, spec: DoorSpec) -> Path:
        """See `GatewayProvider.open_door`."""
        # Before the door is there: the worker may call as soon as it is.
        self._front.admit(spec.uid, self._org)
        self._doors.add(spec.uid)
        return await self._gateway.open_door(spec)

    async def close_door(self, uid: str) -> None:
        """See `GatewayProvider.close_door`."""
        await self._gateway.close_door(uid)
        self._front.dismiss(uid)
        self._doors.discard(uid)

    async def close(self) -> None:
        """Close the doors of this organisation; those of others stay."""
        for uid in list(self._doors):
            await self.close_door(uid)

    def statistics(self) -> GatewayStatistics:
        """Of the whole gateway; see `GatewayProvider.statistics`."""
        return self._gateway.statistics()
