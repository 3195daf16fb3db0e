"""Sessions that people have open in their own terminals: how they stand, their names, what their senders are told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import chain

from postroom.errors import InvalidName
from postroom.protocol.ids import check_nick


class SessionStanding(StrEnum):
    """How a session stands: in a turn, between two, or its client has ended and may resume it."""

    BUSY = "busy"
    IDLE = "idle"
    GONE = "gone"


WOKEN = frozenset({"claude", "codex", "opencode"})
"""Clients with a way of their own to wake a session that is idle."""

KEPT_FOR = 7 * 86400.0
"""Seconds after which a session that was not heard ends."""

CLIENT = "^[a-z0-9][a-z0-9-]{0,31}$"
"""What the name of a client matches."""

NAMESAKES = 20
"""Numbers that are tried behind a name that is taken."""

_LONGEST = 48
"""Characters of a name, so that there is room for what follows it."""

_OTHER = re.compile(r"[^a-z0-9_]+")


def nicks_of(name: str, client: str, endings: Iterable[str]) -> Iterator[str]:
    """Nicks for a session, the best one first: of its folder's name, or else of its client's.

    Args:
        endings: follow the name when all its numbers are taken.
    """
    base = next(
        filter(
            None, (_OTHER.sub("-", each.lower()).strip("-_")[:_LONGEST] for each in (name, client))
        ),
        "session",
    )
    for ending in chain(("",), map(str, range(2, NAMESAKES + 1)), endings):
        with suppress(InvalidName):  # the name is reserved: with an ending it is not
            yield check_nick(f"{base}-{ending}" if ending else base)


def kept_from(client: str, standing: SessionStanding, *, connected: bool) -> tuple[str, str] | None:
    """Why a session does not get its mail by itself, and when it does; None where it does by itself."""
    if standing is SessionStanding.GONE:
        return "is gone", "when it is resumed"
    if not connected:
        return "is not connected now", "at its next activity"
    if standing is SessionStanding.IDLE and client not in WOKEN:
        return f"is idle, and {client} is not woken", "at its next activity"
    return None
