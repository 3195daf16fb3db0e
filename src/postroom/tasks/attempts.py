"""How often a task is begun, and what becomes of one whose attempts are used up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from postroom.protocol.tasks import GAVE_UP
from postroom.protocol.template import ATTEMPTS
from postroom_a2a.tasks import Event


@dataclass(frozen=True, slots=True)
class Attempts:
    """Whether a task whose attempt was lost is begun again.

    Attributes:
        most: attempts that may be lost; with the last of them the task has failed.
        again: a task may be done twice, so an attempt may begin where nobody knows what the one before has done.
        goes_on: whether the agent takes up its work where it was, in a session that outlived it.
    """

    most: int = ATTEMPTS
    again: bool = True
    goes_on: Callable[[], bool] = lambda: False

    @property
    def safe(self) -> bool:
        """Whether a task that was begun may be begun once more."""
        return self.again or self.goes_on()

    def over(self, lost: int, why: str) -> str:
        """Why no attempt follows after `lost` of them were lost, the last by `why`; "" if one does."""
        if lost >= self.most:
            return f"lost {lost} time{'s' if lost > 1 else ''}, last: {why}"
        if not self.safe:
            return f"{why}; what it had done is not known, and its template lets no task run twice"
        return ""


def gave_up(event: Event, lost: int) -> Event:
    """`event`, the end of a task for which no attempt is left, with the number of those that were lost."""
    update = event["statusUpdate"]
    metadata = {**(update.get("metadata") or {}), GAVE_UP: lost}
    return {**event, "statusUpdate": {**update, "metadata": metadata}}


def lost_in(event: dict[str, Any]) -> int:
    """The attempts that were lost, in the end of a task that nobody begins any more; 0 in any other event."""
    update = event.get("statusUpdate")
    metadata = update.get("metadata") if isinstance(update, dict) else None
    lost = metadata.get(GAVE_UP) if isinstance(metadata, dict) else None
    return lost if isinstance(lost, int) and not isinstance(lost, bool) and 0 < lost < 2**31 else 0
