"""The NATS door of A2A: the worker's own subject, and callers of others' (docs/architecture.md, The ephemeral path)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from postroom.protocol import subjects
from postroom.protocol.intervals import CALL_BEAT
from postroom_a2a.binding.headers import Flow
from postroom_a2a.live.calling import CoreCaller
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Frame
from postroom_a2a.operations import Operations

CONCURRENCY = 16
"""Calls that are worked on at a time; one more is told that the worker is busy."""

MAX_REQUEST = 64 * 1024
"""Bytes of a call. What is larger is nothing that can be asked here, and it is not read: that would take its time."""

FLOW = Flow(window=8, beat=CALL_BEAT)
"""What is taken of a stream: so many frames of a bus's message lie unread at most."""

RATE = 200
"""Calls of one caller in a second; further ones are not read: even to refuse a flood would take all of the time."""

DRAIN = 1.0
"""Seconds that calls have to end when the worker is stopped."""


def rpc_server(mailbox: Mailbox, own: str, operations: Operations) -> CoreServer:
    """The server of the worker's `rpc` subject; only who asks with a reply subject of its own is answered."""
    return CoreServer(
        mailbox.connection,
        subjects.rpc(own, "*"),
        operations,
        queue=own,
        concurrency=CONCURRENCY,
        admit=admission(own),
        drain=DRAIN,
        inbox=lambda caller: f"_I.{own}.{caller}",
        within=mailbox,
    )


def admission(own: str) -> Callable[[Frame], str | None]:
    """Gives the uid of who asks; None for what is not read: a frame that is too large or one too many, or whose answer
    would go to somebody else.
    """
    heard: Counter[str] = Counter()
    second = 0

    def admit(frame: Frame) -> str | None:
        nonlocal second
        if (now := int(time.monotonic())) != second:
            second = now
            heard.clear()
        heard[frame.subject] += 1
        if heard[frame.subject] > RATE or len(frame.data) > MAX_REQUEST:
            return None
        if not subjects.accepts_rpc(own, frame.subject, frame.reply):
            return None
        return subjects.sender_of(frame.subject)

    return admit


def rpc_caller(mailbox: Mailbox, own: str, worker: str) -> CoreCaller:
    """The caller of another worker's `rpc` subject."""
    subject = subjects.rpc(worker, own).removesuffix(f".{own}")
    return CoreCaller(mailbox.connection, subject, within=mailbox, sender=own, flow=FLOW)
