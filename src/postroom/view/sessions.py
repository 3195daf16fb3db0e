"""Sessions in the terminals of people, as lists show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.protocol.sessions import SessionStanding
from postroom.view.words import ago
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import SessionState

AWAY = "away"
"""Of a session that is not gone, while nobody takes its mail for it."""


def standing(session: SessionState, *, online: bool) -> str:
    """`busy`, `idle`, `gone` or `away`."""
    state = one_line(session["state"], 10)
    return state if online or state == SessionStanding.GONE else AWAY


def whereabouts(session: SessionState, now: float) -> str:
    """Client, folder, and when it was heard last."""
    folder = one_line(session["folder"], 200)
    heard = f"heard {ago(session['heard_at'], now)}"
    return ", ".join(filter(None, (one_line(session["client"], 32), folder, heard)))
