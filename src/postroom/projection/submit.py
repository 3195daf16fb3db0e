"""Puts one envelope into the log once (docs/architecture.md, Ids of messages).

The log de-duplicates by id alone, over all senders. Another sender could have used the id first to suppress ours, so
"duplicate" counts as acceptance only if the stored record is on our own subject.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from postroom.bus.port import BusAdmin, Message, MessageBusProvider, Stored
from postroom.errors import (
    NoResponders,
    NotFound,
    PostroomError,
    Refused,
    RequestTimeout,
    StreamFull,
)
from postroom.observe import get_logger, tracing
from postroom.observe.tracing import PRODUCER
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert, AlertEnd
from postroom.protocol.content import says_same
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import message_id
from postroom.protocol.traces import traced
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom_a2a.messages import ROLE_AGENT, ROLE_USER
from postroom_a2a.retry import RetryPolicy

log = get_logger(__name__)

PUBLISH_RETRY = RetryPolicy(attempts=3, base=0.4)
"""Attempts to get the log's answer for one id."""

ID_ATTEMPTS = 3
"""Ids to try before we report that somebody suppresses our messages."""


@dataclass(frozen=True, slots=True)
class Author:
    """An agent that writes, and the secret of its message ids."""

    agent: Agent
    secret: bytes

    @property
    def role(self) -> str:
        """Its role in the messages that it sends."""
        return ROLE_USER if self.agent.kind == "human" else ROLE_AGENT


def author_of(store: Store, uid: str, *, removed: bool = False) -> Author:
    """The author with that uid, of whatever organisation; with `removed` also one that was removed.

    Raises:
        NotFound: there is none, or it was removed.
    """
    agent, secret = store.agents.anywhere(uid), store.agents.message_secret(uid, anywhere=True)
    if agent is None or secret is None or (agent.retired and not removed):
        raise NotFound(f"there is no agent with the uid {uid!r}")
    return Author(agent, secret)


@dataclass(frozen=True, slots=True)
class Submission:
    """An envelope in the log under `id`, at `sequence` (0 where SQL had it); `again`: it was there before."""

    id: str
    sequence: int
    envelope: Envelope
    again: bool = False


Reused = Callable[[str], PostroomError]
"""Makes the error for a key that has stored another content, under the id that it gets."""


class Earlier(Protocol):
    """An older message in SQL; `message` is the A2A Message as JSON text."""

    @property
    def message(self) -> str:
        """The Message."""


class Submitter:
    """Puts envelopes into the log of an organisation.

    Args:
        admin: reads a duplicate's record back.
        space: asked before anything is written; raises `StateUnwritable` while the disk is full.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        *,
        new_key: Callable[[], str] = lambda: secrets.token_hex(16),
        space: Callable[[], None] = lambda: None,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._new_key = new_key
        self._space = space

    async def submit(
        self,
        author: Author,
        recipient: str,
        subject: str,
        key: str,
        envelope: Callable[[str], Envelope],
        earlier: Callable[[str], Awaitable[Earlier | None]],
        reused: Reused | None = None,
    ) -> Submission:
        """Store the envelope that `envelope` makes for an id, unless the same key stored it before.

        Args:
            recipient: uid, `#` and a project, or `EVERYBODY`.
            key: idempotency key, "" for a new one each time.
            envelope: makes the envelope for an id.
            earlier: finds an older message in SQL, beyond the log's window of de-duplication.
            reused: makes the error for a key that has stored another content, under that id; None where a key counts
                whatever is said now, as for an agent that says it in other words after a crash.

        Raises:
            PostroomError: of `reused`.
            Refused: somebody else had used each id.
            StateUnwritable: the disk is full.
        """
        self._space()
        with tracing.span("publish", PRODUCER) as trace:
            return await self._submit(
                author, recipient, subject, key, envelope, earlier, reused, trace
            )

    async def _submit(
        self,
        author: Author,
        recipient: str,
        subject: str,
        key: str,
        envelope: Callable[[str], Envelope],
        earlier: Callable[[str], Awaitable[Earlier | None]],
        reused: Reused | None,
        trace: str,
    ) -> Submission:
        for attempt in range(ID_ATTEMPTS):
            # Another sender has used the id, so derive a new one; the caller's own key stays part of it.
            chosen = (f"{key}\0{attempt}" if attempt else key) if key else self._new_key()
            made = message_id(author.secret, recipient, chosen)
            content = envelope(made)
            if trace:
                content = replace(content, message=traced(content.message, trace))
            if key and (known := await earlier(made)) is not None:
                if reused and not says_same(json.loads(known.message), content.message):
                    raise reused(made)
                return Submission(made, 0, content, again=True)
            stored, retried = await _publish(self._bus, subject, content.encode(), made)
            if not stored.duplicate:
                return Submission(made, stored.sequence, content)
            fresh = not key and not retried
            if not fresh and (record := await _ours(self._admin, stored, subject)) is not None:
                before = Envelope.decode(record.payload).message
                if reused and not says_same(before, content.message):
                    raise reused(made)
                return Submission(made, stored.sequence, content, again=True)
            await _tell_suppressed(self._bus, subject)
        raise Refused(
            "somebody else used the id of this message first",
            remedy="look at the alerts, then send again",
        )


async def _publish(
    bus: MessageBusProvider, subject: str, payload: bytes, made: str
) -> tuple[Stored, bool]:
    """Publish until the log answers; also returns whether an earlier attempt may have stored it."""
    late: RequestTimeout | None = None
    for attempt in range(PUBLISH_RETRY.attempts):
        try:
            stored = await bus.publish(subject, payload, id=made)
        except (Refused, NoResponders) as error:
            # An inbox is full only for what it has not stored. All else says nothing of an earlier attempt.
            if late is None or isinstance(error, StreamFull):
                raise
            raise late from error
        except RequestTimeout as error:
            late = error
            if attempt == PUBLISH_RETRY.attempts - 1:
                raise
            await asyncio.sleep(PUBLISH_RETRY.delay(attempt + 1))
            continue
        if stored is None:
            raise NotFound(f"no stream stores {subject!r}")
        return stored, attempt > 0
    raise AssertionError


async def _ours(admin: BusAdmin, stored: Stored, subject: str) -> Message | None:
    """The stored record, None if it is somebody else's."""
    try:
        record = await admin.get(stored.stream, stored.sequence)
    except NotFound:
        # Deleted since. Only messages with a folded final state are deleted, and `earlier` has not found it.
        return None
    return record if record.subject == subject else None


async def _tell_suppressed(bus: MessageBusProvider, subject: str) -> None:
    log.warning("an id for %s was used before by somebody else", subject)
    text = f"A message on {subject} was held back by a copy of its id; it is sent under a new one."
    await append_alert(bus, Alert("suppressed", text, about=subject))


async def append_alert(bus: MessageBusProvider, alert: Alert | AlertEnd) -> int:
    """Append an alert, or the end of alerts, as the identity of `bus`; returns its sequence.

    It carries no de-duplication id, because an agent that guessed one could use it first.
    """
    stored = await bus.publish(subjects.alerts(bus.uid), alert.encode())
    return 0 if stored is None else stored.sequence
