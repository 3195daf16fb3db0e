"""One question to a server over its system account."""

from __future__ import annotations

from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Connection


async def ask(
    connection: Connection, subject: str, payload: bytes = b"", *, timeout: float
) -> bytes:
    """The answer to a question.

    Raises:
        RequestTimeout, BusDisconnected: there is none.
    """
    mailbox = Mailbox(connection)
    try:
        return (await mailbox.ask(subject, payload, timeout=timeout)).data
    finally:
        await mailbox.close()
