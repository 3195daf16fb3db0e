"""Live A2A over NATS: the server of the worker's subject, and callers of others (docs/architecture.md, The ephemeral
path).
"""

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
"""Calls at a time; the answer to a further one is that the worker is busy."""

MAX_REQUEST = 64 * 1024
"""Bytes of a call. A larger one is dropped unread, which saves the time to parse it: no valid call is so large."""

FLOW = Flow(window=8, beat=CALL_BEAT)
"""Flow control of a stream: at most so many frames, each a message of the bus, lie unread."""

RATE = 200
"""Calls of one caller in a second; further ones are dropped unread: even refusals would take all of the time."""

DRAIN = 1.0
"""Seconds for calls to end when the worker is stopped."""


def rpc_server(mailbox: Mailbox, own: str, operations: Operations) -> CoreServer:
    """The server of the worker's `rpc` subject; it answers only callers with a reply subject of their own."""
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
    """A function that gives a frame's caller; None if the frame is too large, one too many, or would be answered to
    another agent.
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
