"""What waiting for a receipt came to, as an error where it did not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.errors import Refused, RequestTimeout
from postroom.protocol.receipts import State, reached

if TYPE_CHECKING:
    from postroom.client.records import Mail

MILESTONES = ("delivered", "seen", "answered")
DEFAULT_TIMEOUT = 120.0


def check(mail: Mail, milestone: str, timeout: float) -> None:
    """Raise if `mail` has not reached `milestone`.

    Raises:
        Refused: it is dead.
        RequestTimeout: it is still on its way.
    """
    state = State(mail["state"])
    if state is State.DEAD:
        raise Refused(
            f"message {mail['id']} is dead: {mail['reason'] or 'no reason given'}",
            remedy="postroom deadletters list",
        )
    if not reached(state, State(milestone)):
        raise RequestTimeout(
            f"not {milestone} within {timeout:g} s: message {mail['id']} is {state.value} and still on its way",
            remedy="wait longer with --timeout; an answer will be in: postroom inbox",
        )
