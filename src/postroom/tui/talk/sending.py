"""What is typed goes once: the same line after an error is the same message.

An error may leave unknown whether the post room has a message. What the person does then is to send it again, and the
key that each attempt has makes both one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postroom.client.calls import Part, new_key
from postroom.client.rules import PERHAPS_DONE
from postroom.errors import NotRunning, PostroomError, Uncertain

KEPT = 8
"""Lines that could not be sent whose attempts are kept."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A line to send: its idempotency key, and the message that it answers ("" for none)."""

    text: str
    parts: tuple[Part, ...]
    key: str
    answers: str


class Attempts:
    """The lines of one conversation that could not be sent."""

    def __init__(self) -> None:
        self._failed: list[Attempt] = []

    def begin(self, text: str, parts: Sequence[Part], answers: str) -> Attempt:
        """The attempt that failed with that line, or a new one."""
        for failed in self._failed:
            if (failed.text, failed.parts) == (text, tuple(parts)):
                return failed
        return Attempt(text, tuple(parts), new_key(), answers)

    def sent(self, attempt: Attempt) -> None:
        """It went; the same line is another message from now on."""
        self._failed = [one for one in self._failed if one != attempt]

    def failed(self, attempt: Attempt, error: PostroomError) -> None:
        """Keep it, and have the error say what became of it."""
        self.sent(attempt)
        self._failed = [*self._failed, attempt][-KEPT:]
        if isinstance(error, NotRunning):
            error.message = f"nothing was sent: {error.message}"
        elif isinstance(error, (Uncertain, *PERHAPS_DONE)):
            error.remedy = "send the same text again: it goes once"
