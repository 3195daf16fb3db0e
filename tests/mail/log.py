"""Records of the log made by hand, and what folding them gives; no bus, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from sqlalchemy import select

from postroom.bus.port import Message
from postroom.mail.projection import RULES
from postroom.projection.rules import Folded, fold
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import Receipt, State
from postroom.store.messages import COLUMNS, MessageRow
from postroom.store.schema import PROJECTION
from postroom_a2a.messages import text_message
from tests.stores import memory_store

ALICE, BOB, EVE = "a" * 32, "b" * 32, "e" * 32

Record = tuple[str, Message]
"""Stream and record."""


def envelope(message_id: str, to: str = BOB, **fields: Any) -> Envelope:
    return Envelope(
        message_id, to, text_message(message_id, f"text of {message_id}"), 1000.0, **fields
    )


def inbox(seq: int, payload: bytes | Envelope, *, to: str = BOB, sender: str = ALICE) -> Record:
    body = payload if isinstance(payload, bytes) else payload.encode()
    return "INBOX", Message("", sender, subjects.inbox(to, sender), body, {}, 1000.0 + seq, seq)


def receipt(
    seq: int,
    message_id: str,
    state: State,
    *,
    sender: str = ALICE,
    recipient: str = BOB,
    setter: str = BOB,
    reason: str = "",
) -> Record:
    payload = Receipt(message_id, recipient, state, 5.0, reason).encode()
    subject = subjects.receipts(sender, setter)
    return "RECEIPTS", Message("", setter, subject, payload, {}, 2000.0 + seq, seq)


def own_receipt(seq: int, message_id: str, state: State, reason: str = "") -> Record:
    return receipt(seq, message_id, state, setter=CONTROL_PLANE, reason=reason)


def post(
    seq: int, payload: bytes | Envelope, *, project: str = "main", sender: str = ALICE
) -> Record:
    body = payload if isinstance(payload, bytes) else payload.encode()
    return "FEED", Message("", sender, subjects.feed(project, sender), body, {}, 1000.0 + seq, seq)


class Rows:
    """A projection in memory."""

    def __init__(self) -> None:
        self.store = memory_store()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.session.driver.close()

    def fold(self, *records: Record) -> list[Folded]:
        return [fold(self.store, RULES, stream, [record]) for stream, record in records]

    def fold_batch(self, stream: str, records: Sequence[Message]) -> Folded:
        return fold(self.store, RULES, stream, records)

    def tables(self, *, without: Iterable[str] = ()) -> dict[str, list[tuple]]:
        """Every row of the projection."""
        return {
            table.name: [
                tuple(row)
                for row in self.store.session.rows(select(table).order_by(*table.primary_key))
            ]
            for table in PROJECTION
            if table.name not in without
        }

    def states(self) -> dict[str, str]:
        """Message id to its state."""
        return {row.id: row.state for row in self.store.session.all(MessageRow, select(*COLUMNS))}
