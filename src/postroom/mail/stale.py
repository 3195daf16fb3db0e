"""An agent that does not take its messages for too long raises one alert (docs/architecture.md, What it does).

That it was raised is known from the log of alerts, so a restart raises no second one. The mail of people is none of
it: they read when they want to.
"""

from __future__ import annotations

from functools import partial

from postroom.bus.port import MessageBusProvider
from postroom.mail.due import Due
from postroom.projection.submit import append_alert
from postroom.protocol.alerts import Alert
from postroom.store import pending
from postroom.store.alerts import STALE
from postroom.store.database import Connection, Database
from postroom.store.messages import MessageRow
from postroom.store.parties import parties


class Stale:
    """A task for `due.Watch`.

    Args:
        bus: connection of the control plane.
        database: the projection.
        after: seconds in `accepted` that are too long.
    """

    def __init__(self, bus: MessageBusProvider, database: Database, after: float) -> None:
        self._bus = bus
        self._database = database
        self._after = after

    async def find(self, now: float) -> Due:
        """The first message to each agent that was not taken in time and that no alert tells of."""
        return await self._database.read(partial(_find, now=now, patience=self._after))

    async def act(self, message: MessageRow) -> None:
        """Raise the alert."""
        text = await self._database.read(partial(_text, message=message, patience=self._after))
        await append_alert(self._bus, Alert(STALE, text, message.recipient))


def _text(connection: Connection, message: MessageRow, patience: float) -> str:
    waiting = pending.count_untaken(connection, message.recipient)
    sender = parties(connection, [message.sender])[message.sender]
    return (
        f"has not taken its messages for {patience:.0f} s: {waiting} wait,"
        f" the first from @{sender.nick or sender.uid}"
    )


def _find(connection: Connection, now: float, patience: float) -> Due:
    limit = now - patience
    waiting = pending.untaken(connection, limit)
    first = {message.recipient: message for message in reversed(waiting)}
    following = pending.next_untaken(connection, limit)
    return Due(list(first.values()), None if following is None else following + patience)
