"""Messages that become due at an instant: they expire, or nobody has taken them."""

from __future__ import annotations

from functools import partial

from postroom.bus.port import MessageBusProvider
from postroom.mail.clerk import Clerk
from postroom.projection.due import Due
from postroom.projection.submit import append_alert
from postroom.protocol.alerts import Alert
from postroom.protocol.receipts import Reason, State
from postroom.store.alerts import STALE
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow


class Expiry:
    """The job that turns expired messages into dead(expired)."""

    def __init__(self, database: Database, clerk: Clerk) -> None:
        self._database = database
        self._clerk = clerk

    async def find(self, now: float) -> Due[MessageRow]:
        """Open messages whose `expires_at` has passed."""
        return await self._database.read(partial(_expired, now=now))

    def due_at(self, row: MessageRow) -> float | None:
        """When it expires."""
        return row.expires_at or None

    async def act(self, row: MessageRow) -> None:
        """Append the receipt dead(expired)."""
        await self._clerk.report(row, State.DEAD, Reason.EXPIRED.value)


def _expired(store: Store, now: float) -> Due[MessageRow]:
    return Due(store.pending.expired(now), store.pending.next_expiry(now))


class Stale:
    """The job that raises one alert for an agent that does not take its messages.

    Args:
        after: seconds in `accepted` that are too long.
    """

    def __init__(self, bus: MessageBusProvider, database: Database, after: float) -> None:
        self._bus = bus
        self._database = database
        self._after = after

    async def find(self, now: float) -> Due[MessageRow]:
        """The first overdue message to each agent without such an alert."""
        return await self._database.read(partial(_untaken, now=now, limit=self._after))

    def due_at(self, row: MessageRow) -> float | None:
        """When it has been in `accepted` for too long."""
        return row.stored_at + self._after

    async def act(self, row: MessageRow) -> None:
        """Raise the alert."""
        text = await self._database.read(partial(_stale_text, message=row, limit=self._after))
        await append_alert(self._bus, Alert(STALE, text, row.recipient))


def _stale_text(store: Store, message: MessageRow, limit: float) -> str:
    waiting = store.pending.count_untaken(message.recipient)
    sender = store.agents.parties([message.sender])[message.sender]
    return (
        f"has not taken its messages for {limit:.0f} s: {waiting} wait,"
        f" the first from @{sender.nick or sender.uid}"
    )


def _untaken(store: Store, now: float, limit: float) -> Due[MessageRow]:
    before = now - limit
    waiting = store.pending.untaken(before)
    first = {message.recipient: message for message in reversed(waiting)}
    following = store.pending.next_untaken(before)
    return Due(list(first.values()), None if following is None else following + limit)
