"""How an agent is named in a query."""

from __future__ import annotations

from postroom.control.context import Context
from postroom.protocol.ids import UID


async def uid_of(context: Context, ref: str) -> str:
    """The uid that `ref` means, also of an agent that is retired; "" for ""."""
    if not ref or UID.fullmatch(ref):
        return ref
    return (await context.room.directory.resolve(ref)).uid
