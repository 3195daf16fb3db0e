"""How an alert is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.cli.output import clock
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.records import Alert


def alert_line(alert: Alert, now: float) -> str:
    """Its number, when it was raised last, about whom, and what: one line."""
    who = f"@{one_line(alert['nick'], 64)} " if alert["nick"] else ""
    again = f" ({alert['count']} times)" if alert["count"] > 1 else ""
    return f"{alert['id']}  {clock(alert['at'], now)}  {who}{one_line(alert['text'], 300)}{again}"
