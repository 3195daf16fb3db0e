"""What the worker sends: messages and posts, each stored before it counts as accepted.

The id of a message is an HMAC over recipient and idempotency key, so trying again is safe: the log stores one.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from postroom.errors import InvalidInput, PeerError
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.ids import check_name, check_uid, message_id
from postroom.sidecar.bus import PUBLISH_DEADLINE, BusClient, Published, publish_durably
from postroom.sidecar.keys import Key
from postroom_a2a.messages import ROLE_AGENT, ROLE_USER, text_message

REMEMBERED = 4096
"""Own messages whose recipient is remembered, to judge receipts by."""

NEW_IDS = 3
"""Ids tried when each is found taken."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message before it has an id.

    Attributes:
        text: of its only part.
        expects_reply: whether it ends `answered`.
        reply_to: id of the message that it answers, or "".
        context: A2A context id, or "".
        expires_in: seconds, 0 for never.
        request: it asks for a task.
        named: the `messageId` that its author gave it, "" for none; it is said to people and proves nothing.
    """

    recipient: str
    text: str
    expects_reply: bool = False
    reply_to: str = ""
    context: str = ""
    expires_in: float = 0.0
    request: TaskRequest | None = None
    named: str = ""


class Said(NamedTuple):
    """What a message says: its text, its A2A context and its author's `messageId`, both "" for none."""

    text: str
    context: str = ""
    named: str = ""


class Outgoing:
    """Sends for one worker.

    Args:
        raise_alert: called when an id was taken by somebody else.
        secret: key of its message ids.
        projects: that it may post to, its own first.
        deadline: seconds that one message is tried.
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

    async def message(self, draft: OutgoingMessage, key: Key) -> str:
        """Send it; returns its id once it is on disk.

        Raises:
            MessageTooLarge: nothing was sent.
            RequestTimeout, BusDisconnected: not known to be stored; send again with the same key.
            PostroomError: any other refusal of the bus.
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
        said = Said(draft.text, draft.context, draft.named)
        sent = await self._accept(subject, envelope, said, key)
        self._recipients[sent] = draft.recipient
        while len(self._recipients) > REMEMBERED:
            self._recipients.popitem(last=False)
        return sent

    async def post(self, project: str, text: str, key: Key) -> str:
        """Post to a project's feed ("" for the own one); returns the id once it is on disk.

        Raises:
            InvalidInput: there is no project to post to.
        """
        chosen = project or self.home
        if not chosen:
            raise InvalidInput("this worker has no project to post to", remedy="name a project")
        check_name(chosen, "project")
        envelope = Envelope(id="", to=f"#{chosen}", message={}, sent_at=self._now())
        return await self._accept(subjects.feed(chosen, self._own), envelope, Said(text), key)

    @property
    def home(self) -> str:
        """The project that posts go to where none is named."""
        return self._projects[0] if self._projects else ""

    def recipient_of(self, sent: str) -> str:
        """To whom the message `sent` went, "" if that is not known (any more)."""
        return self._recipients.get(sent, "")

    async def _accept(self, subject: str, envelope: Envelope, said: Said, key: Key) -> str:
        for _ in range(NEW_IDS):
            new = message_id(self._secret, envelope.to, key.text)
            # Who asks for a task is its user, whatever it is otherwise (A2A 1.0, section 4.1.5).
            role = ROLE_USER if envelope.request is not None else ROLE_AGENT
            message = text_message(said.named or new, said.text, role=role, context_id=said.context)
            payload = replace(envelope, id=new, message=message).encode()
            published = await publish_durably(
                self._bus, subject, payload, id=new, deadline=self._deadline
            )
            if not _taken(published, key):
                return new
            # Nobody else can make this id, so somebody learnt it and stored a record of their own under it.
            await self._raise_alert(
                Alert("message-id-taken", f"the id {new} was taken before its first use")
            )
            key = Key(f"{key.text}:again:{secrets.token_hex(8)}", repeatable=False)
        raise PeerError("each id of the message was taken by somebody else; it was not accepted")


def _taken(published: Published, key: Key) -> bool:
    """Whether a duplicate is not our own: on a first attempt with a key that was never used before."""
    stored = published.stored
    return (
        stored is not None and stored.duplicate and published.attempts == 1 and not key.repeatable
    )
