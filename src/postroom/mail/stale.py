"""A message that nobody takes for too long raises one alert (docs/architecture.md, What it does).

That it was raised is known from the log of alerts, so a restart raises no second one.
"""

from __future__ import annotations

from functools import partial

from postroom.bus.port import MessageBusProvider
from postroom.folding.alerts import Alert, raise_alert
from postroom.mail.due import Due
from postroom.protocol.ids import CONTROL_PLANE
from postroom.store import pending
from postroom.store.database import Connection, Database
from postroom.store.messages import MessageRow
from postroom.store.parties import parties

KIND = "stale"


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
        """Messages that nobody took in time and that no alert is about."""
        return await self._database.read(partial(_find, now=now, patience=self._after))

    async def act(self, message: MessageRow) -> None:
        """Raise the alert."""
        who = await self._database.read(lambda c: parties(c, (message.sender, message.recipient)))
        sender, recipient = who[message.sender], who[message.recipient]
        text = (
            f"@{recipient.nick or recipient.uid} has not taken message {message.id} "
            f"from @{sender.nick or sender.uid} for {self._after:.0f} s"
        )
        await raise_alert(self._bus, Alert(text, KIND, f"{message.sender}/{message.id}"))


def _find(connection: Connection, now: float, patience: float) -> Due:
    limit = now - patience
    waiting = pending.untaken(connection, limit, KIND, CONTROL_PLANE)
    following = pending.next_untaken(connection, limit, KIND, CONTROL_PLANE)
    return Due(waiting, None if following is None else following + patience)
