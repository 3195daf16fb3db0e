"""Which records of mail are over.

A record of INBOX or RECEIPTS is over when the final state of its message is folded and it has been final for a while:
its sender may still want to hear the receipt.
"""

from __future__ import annotations

from postroom.bus.port import Message
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.projection.retention import Over, covered
from postroom.protocol import subjects
from postroom.protocol.receipts import Receipt
from postroom.store import messages
from postroom.store.database import Connection
from postroom.store.messages import MessageRow


def _message_over(copy: Connection, record: Message, before: float) -> bool:
    return covered(copy, "INBOX", record) and _final(
        messages.message_at(copy, record.sequence), before
    )


def _receipt_over(copy: Connection, record: Message, before: float) -> bool:
    if not covered(copy, "RECEIPTS", record):
        return False
    try:
        about = Receipt.decode(record.payload).message_id
        sender = subjects.parse(record.subject).recipient
    except (ProtocolViolation, InvalidInput):
        return True
    return _final(messages.message_of(copy, sender, about), before)


def _final(row: MessageRow | None, before: float) -> bool:
    # Folded and no row: a copy of an earlier message, or a receipt for none.
    return row is None or (row.final and row.updated_at < before)


OVER: dict[str, Over] = {"INBOX": _message_over, "RECEIPTS": _receipt_over}
