"""The worker's own messages and posts, each stored before it counts as accepted, and its receipts of others' messages.

The id of a message is an HMAC over recipient and idempotency key, so trying again is safe: the log stores one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from postroom.bus.port import Delivery
from postroom.errors import InvalidInput, PeerError, PostroomError
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.content import Content
from postroom.protocol.envelope import EVERYBODY, Envelope, TaskRequest
from postroom.protocol.ids import check_name, check_uid, message_id
from postroom.protocol.receipts import Receipt, State
from postroom.protocol.streams import redelivery_delay
from postroom.sidecar.bus import PUBLISH_DEADLINE, BusClient, Published, publish_durably
from postroom.sidecar.keys import Key
from postroom_a2a.messages import ROLE_AGENT, ROLE_USER

REMEMBERED = 4096
"""Own messages whose recipient is remembered, to check receipts."""

NEW_IDS = 3
"""Tries with a new id when the one before is taken."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message before it has an id.

    Attributes:
        said: a text stands for a content of one part.
        expects_reply: its final state is `answered`.
        reply_to: id of the message that it answers, or "".
        expires_in: seconds, 0 for never.
        request: set if the message asks for a task.
        named: the `messageId` of its author, "" for none; shown to people, proves nothing.
    """

    recipient: str
    said: Content | str
    expects_reply: bool = False
    reply_to: str = ""
    expires_in: float = 0.0
    request: TaskRequest | None = None
    named: str = ""


class Outgoing:
    """Sends for one worker.

    Args:
        secret: key of its message ids.
        projects: those that it may post to, its own first.
        deadline: seconds of tries for one message.
    """

    def __init__(
        self,
        bus: BusClient,
        raise_alert: RaiseAlert,
        *,
        own: str,
        secret: bytes,
        projects: tuple[str, ...] = (),
        now: Callable[[], float] = time.time,
        deadline: float = PUBLISH_DEADLINE,
    ) -> None:
        self._bus = bus
        self._raise_alert = raise_alert
        self._own = own
        self._secret = secret
        self._projects = projects
        self._now = now
        self._deadline = deadline
        self._recipients: OrderedDict[str, str] = OrderedDict()

    async def message(self, draft: OutgoingMessage, key: Key) -> tuple[str, bool]:
        """Send a message; returns its id once it is on disk, and whether it was sent before, as far as the log knows.

        Raises:
            MessageTooLarge: nothing was sent.
            RequestTimeout, BusDisconnected: the message may be stored; send it again with the same key.
        """
        sent_at = self._now()
        envelope = Envelope(
            id="",
            to=check_uid(draft.recipient),
            message={},
            sent_at=sent_at,
            expects_reply=draft.expects_reply,
            reply_to=draft.reply_to,
            expires_at=sent_at + draft.expires_in if draft.expires_in else 0.0,
            request=draft.request,
        )
        subject = subjects.inbox(draft.recipient, self._own)
        sent, again = await self._accept(subject, envelope, draft.said, key, named=draft.named)
        self._recipients[sent] = draft.recipient
        while len(self._recipients) > REMEMBERED:
            self._recipients.popitem(last=False)
        return sent, again

    async def post(self, project: str, said: Content | str, key: Key) -> str:
        """Post to a project's feed, "" for the worker's own project; returns the id once the post is on disk."""
        chosen = project or self.home
        if not chosen:
            raise InvalidInput("this worker has no project to post to", remedy="name a project")
        check_name(chosen, "project")
        envelope = Envelope(id="", to=f"#{chosen}", message={}, sent_at=self._now())
        sent, _ = await self._accept(subjects.feed(chosen, self._own), envelope, said, key)
        return sent

    async def announce(self, said: Content, key: Key) -> str:
        """Announce something on the worker's outbox; returns the id once the announcement is on disk."""
        envelope = Envelope(id="", to=EVERYBODY, message={}, sent_at=self._now())
        sent, _ = await self._accept(subjects.outbox(self._own), envelope, said, key)
        return sent

    @property
    def home(self) -> str:
        """The worker's own project, "" for none."""
        return self._projects[0] if self._projects else ""

    def recipient_of(self, sent: str) -> str:
        """The recipient of the message `sent`, "" if it is not remembered."""
        return self._recipients.get(sent, "")

    async def _accept(
        self,
        subject: str,
        envelope: Envelope,
        said: Content | str,
        key: Key,
        *,
        named: str = "",
    ) -> tuple[str, bool]:
        content = Content.of_text(said) if isinstance(said, str) else said
        for _ in range(NEW_IDS):
            new = message_id(self._secret, envelope.to, key.text)
            # The requester of a task is its user, even if it is an agent (A2A 1.0, section 4.1.5).
            role = ROLE_USER if envelope.request is not None else ROLE_AGENT
            message = content.message(named or new, role)
            payload = replace(envelope, id=new, message=message).encode()
            published = await publish_durably(
                self._bus, subject, payload, id=new, deadline=self._deadline
            )
            if not _taken(published, key):
                return new, published.attempts == 1 and _is_duplicate(published)
            # Only this worker can make the id, so an agent that learnt it has stored a record of its own under it.
            await self._raise_alert(
                Alert("message-id-taken", f"the id {new} was taken before its first use")
            )
            key = Key(f"{key.text}:again:{secrets.token_hex(8)}", repeatable=False)
        raise PeerError(
            f"the message was not accepted: another agent has taken its id {NEW_IDS} times"
        )


def _taken(published: Published, key: Key) -> bool:
    """Whether the record is a duplicate of another agent's: on the first attempt with a key that was never used."""
    return _is_duplicate(published) and published.attempts == 1 and not key.repeatable


def _is_duplicate(published: Published) -> bool:
    return published.stored is not None and published.stored.duplicate


class Receipts:
    """Publishes receipts to senders; the same report twice is stored once."""

    def __init__(
        self, bus: BusClient, own: str, secret: bytes, now: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._own = own
        self._secret = secret
        self._now = now

    async def report(self, message: str, sender: str, state: State, reason: str = "") -> None:
        """Report that the message of `sender` reached `state`; `reason` tells people why it stays there."""
        receipt = Receipt(message, self._own, state, self._now(), reason)
        said = f"{state}:{reason}" if reason else state
        await publish_durably(
            self._bus,
            subjects.receipts(sender, self._own),
            receipt.encode(),
            id=message_id(self._secret, sender, f"receipt:{message}:{said}"),
        )


_log = get_logger(__name__)


class Confirmations:
    """The confirmed messages of one worker whose deliveries are still open.

    Args:
        report: stores a receipt; False if it failed.
        start: runs work in the background.
    """

    def __init__(
        self,
        report: Callable[[str, str, State], Awaitable[bool]],
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._report = report
        self._start = start
        self._deliveries: dict[str, Delivery] = {}
        self._all_done = asyncio.Event()
        self._all_done.set()

    def begin(
        self, message_id: str, sender: str, delivery: Delivery, *, told: bool = False
    ) -> None:
        """Report a message as seen, unless its sender was `told`, then acknowledge its delivery."""
        under_way = message_id in self._deliveries
        self._deliveries[message_id] = delivery
        if not under_way:
            self._all_done.clear()
            self._start(self._report_and_ack(message_id, sender, told=told))

    async def _report_and_ack(self, message_id: str, sender: str, *, told: bool) -> None:
        attempt = 0
        try:
            # While the delivery is open the bus does not repeat it, so no later one would report it.
            while not told and not await self._report(message_id, sender, State.SEEN):
                attempt += 1
                await asyncio.sleep(redelivery_delay(attempt))
            await self._acknowledge(message_id)
        finally:
            del self._deliveries[message_id]
            if not self._deliveries:
                self._all_done.set()

    async def _acknowledge(self, message_id: str) -> None:
        """Acknowledge the latest delivery, and each one that replaces it meanwhile."""
        done: Delivery | None = None
        while (delivery := self._deliveries[message_id]) is not done:
            done = delivery
            try:
                await delivery.ack()
            except PostroomError as error:
                # The bus delivers it again, and the journal leads back here.
                _log.warning("message %s is seen, but not acknowledged: %s", message_id, error)

    async def done(self, timeout: float) -> None:
        """Wait until all are acknowledged."""
        try:
            async with asyncio.timeout(timeout):
                await self._all_done.wait()
        except TimeoutError:
            _log.warning(
                "%d confirmed messages were not acknowledged in time", len(self._deliveries)
            )
