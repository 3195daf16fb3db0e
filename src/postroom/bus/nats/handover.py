"""One connection takes over from another without a gap: make before break.

    connect the new one -> subscribe there too -> hold what is to be sent until the server has worked through what was
    sent over the former -> send over the new one -> unsubscribe from the former, take what is on its way -> end it

At no moment is nobody subscribed, so nothing is lost and no request finds nobody; `Interest` sees to it that nothing
is handed on twice. Frames that wait for the hold to end are sent in their order, so that one publisher's stay in
order.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from postroom.bus.nats.attachment import Attachment
from postroom.bus.nats.interest import Interest

DRAIN_TIMEOUT = 2.0
"""Seconds that the former connection has for each step of its end; then it is cut."""

SPREAD = 0.2
"""Seconds in which the servers of a cluster learn of each other's subscriptions; no event tells when they have."""


class Switchboard(Protocol):
    """The link, as a handover needs it."""

    interests: set[Interest]

    def hold(self) -> None:
        """Let what is to be sent wait."""

    def switch(self, attachment: Attachment) -> None:
        """Send over `attachment` from now on, and what was held first."""


async def hand_over(
    link: Switchboard, former: Attachment, new: Attachment, deadline: float
) -> bool:
    """Move everything from `former` to `new`, up to the last unsubscription; `former` may then be ended.

    Returns:
        Whether `former` was left in order; otherwise what was sent over it last may not have arrived.

    Raises:
        nats.errors.Error, OSError: `new` broke before it took over; `former` is as it was.
    """
    interests = set(link.interests)
    for interest in interests:
        await interest.join(new.client)
    if not await new.pong(_step(deadline)):
        raise ConnectionError("the new connection broke before it took over")
    far = former.client.server_id != new.client.server_id
    if far:
        await asyncio.sleep(SPREAD)
    link.hold()
    orderly = former.up and await former.pong(_step(deadline))
    if not orderly:
        new.client.take_unsent(former.client)
    link.switch(new)
    for interest in interests:
        await interest.leave(former.client)
    drained = former.up and await former.pong(_step(deadline))
    for interest in interests:
        interest.left(former.client)
    await new.pong(_step(deadline))
    if far:
        await asyncio.sleep(SPREAD)
    for interest in interests:
        interest.settled(new.client)
    return orderly and drained


def _step(deadline: float) -> float:
    return min(deadline, asyncio.get_running_loop().time() + DRAIN_TIMEOUT)
