"""The life of a message toward one recipient, as one transition table (docs/architecture.md, Final states).

`accepted` (in the log, on disk) → `delivered` (handed to the recipient's process) → `seen` (in the agent's
context) → `answered`; or `dead` with a reason. States only move forward. A message that expects a reply ends
`answered`, one that does not ends `seen`, a feed post ends `accepted`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from postroom.errors import InvalidName, ProtocolViolation
from postroom.protocol.ids import check_message_id
from postroom.protocol.records import instant, read_record
from postroom_a2a import strict_json
from postroom_a2a.text import one_line


class State(StrEnum):
    """State of a message toward one recipient."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    SEEN = "seen"
    ANSWERED = "answered"
    DEAD = "dead"


class Reason(StrEnum):
    """Why a message is dead. A reason may be followed by a detail in the receipt."""

    NO_SUCH_RECIPIENT = "no such recipient"
    RETIRED = "recipient retired"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNDELIVERABLE = "undeliverable"
    MALFORMED = "malformed"
    DROPPED = "dropped"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.ACCEPTED: frozenset({State.DELIVERED, State.SEEN, State.ANSWERED, State.DEAD}),
    State.DELIVERED: frozenset({State.SEEN, State.ANSWERED, State.DEAD}),
    State.SEEN: frozenset({State.ANSWERED, State.DEAD}),
    State.ANSWERED: frozenset(),
    State.DEAD: frozenset(),
}
"""The states that may follow each state, for a message that expects a reply."""


def is_final(state: State, *, expects_reply: bool) -> bool:
    """Whether no state follows `state`."""
    return not TRANSITIONS[state] or (state is State.SEEN and not expects_reply)


def advance(current: State, new: State, *, expects_reply: bool) -> State:
    """The state after a report of `new`: `new` if it may follow `current`, else `current`.

    Reports come late, twice and out of order, since several components send them; the table decides.
    """
    if is_final(current, expects_reply=expects_reply):
        return current
    if new is State.ANSWERED and not expects_reply:
        new = State.SEEN
    return new if new in TRANSITIONS[current] else current


RANK = {state: rank for rank, state in enumerate(State)}
"""Order of the states, for questions such as "at least seen"; `dead` ranks last and reaches no other state."""


def reached(current: State, wanted: State) -> bool:
    """Whether a message in `current` has reached `wanted`; a dead one has reached `dead` only."""
    if current is State.DEAD:
        return wanted is State.DEAD
    return RANK[current] >= RANK[wanted]


# One token of a subject, or `#` and a project. It may name an agent that never existed.
_RECIPIENT = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """One report on one message, as stored in RECEIPTS; its subject names the reporter.

    Attributes:
        reason: for `dead`; for `delivered` if the recipient does not confirm it; else "".
        at: instant of the report.
    """

    message_id: str
    recipient: str
    state: State
    at: float
    reason: str = ""

    def encode(self) -> bytes:
        """The record's payload."""
        record: dict[str, Any] = {
            "v": 1,
            "message_id": self.message_id,
            "recipient": self.recipient,
            "state": self.state.value,
            "at": self.at,
        }
        if self.reason:
            record["reason"] = self.reason
        return strict_json.dumps(record)

    @classmethod
    def decode(cls, payload: bytes) -> Receipt:
        """The receipt in a record's payload."""
        record = read_record(payload)
        message_id, recipient = record.get("message_id"), record.get("recipient")
        if not isinstance(message_id, str) or not isinstance(recipient, str):
            raise ProtocolViolation("a receipt names a message and a recipient")
        if _RECIPIENT.fullmatch(recipient) is None:
            raise ProtocolViolation("the recipient of a receipt is no address")
        try:
            return cls(
                message_id=check_message_id(message_id),
                recipient=recipient,
                state=State(record["state"]),
                at=instant(record, "at"),
                reason=one_line(str(record.get("reason", "")), 500),
            )
        except (ValueError, KeyError, RecursionError, InvalidName) as error:
            raise ProtocolViolation(f"not a receipt: {error}") from error


def may_set(setter: str, recipient: str, control_plane: str) -> bool:
    """Whether `setter` (from the subject) may report on a message to `recipient`.

    Only the recipient knows what it received; only the control plane declares anything else.
    """
    return setter in (recipient, control_plane)
