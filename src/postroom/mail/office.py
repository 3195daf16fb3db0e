"""The post office for people, services and the API: send, post, read, wait.

Agents in sandboxes do not call it: their sidecars publish on the bus, and the fold treats both alike.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from postroom.bus.port import BusAdmin, MessageBusProvider
from postroom.directory.agents import resolve
from postroom.errors import InvalidInput, NotFound, RequestTimeout
from postroom.mail import views
from postroom.mail.views import Mail, Post
from postroom.projection.changes import FOLD_WAIT, Changes, of_message
from postroom.projection.submit import Submission, submit
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import ID_PREFIX, MAX_CANDIDATES, check_name, only_one
from postroom.protocol.receipts import Receipt, State, reached
from postroom.settings import DEFAULT_ORG, DEFAULT_PROJECT
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.parties import Party
from postroom.store.records import PostRow
from postroom_a2a.messages import ROLE_AGENT, ROLE_USER, text_message

T = TypeVar("T")

MAX_UNFOLDED = 4096
"""Own messages that are remembered until the next read; older ones were folded long ago."""

PAGE = 50
"""Messages or posts of one answer where the caller names no limit."""


@dataclass(frozen=True, slots=True)
class _Sender:
    agent: Agent
    secret: bytes


class PostOffice:
    """Send, read and wait, in the name of an agent that the caller has authenticated.

    Args:
        space: asked before anything is written; raises `StateUnwritable` while the disk is full.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        database: Database,
        changes: Changes,
        *,
        org: str = DEFAULT_ORG,
        clock: Callable[[], float] = time.time,
        new_key: Callable[[], str] = lambda: secrets.token_hex(16),
        space: Callable[[], None] = lambda: None,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._database = database
        self._changes = changes
        self._org = org
        self._clock = clock
        self._new_key = new_key
        self._space = space
        # Accepted messages that nobody has read since: the next read waits until they are folded.
        self._unfolded: dict[str, Callable[[], Awaitable[MessageRow | None]]] = {}

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        sender: str,
        recipient: str,
        text: str,
        *,
        expects_reply: bool = True,
        key: str = "",
        reply_to: str = "",
        expires_in: float = 0.0,
        folded: bool = True,
    ) -> Mail:
        """Send a message; on return it is in the log, on disk.

        Unless stated otherwise, an error means that nothing was sent.

        Args:
            recipient: `@nick` or uid.
            expects_reply: the message ends `answered` and not `seen`.
            key: idempotency key: one key and one recipient give one message. "" for a new message.
            reply_to: id of a message from `recipient` that this one answers.
            expires_in: seconds until delivery stops, 0 for never.
            folded: return after the fold; otherwise only later reads wait for it.

        Raises:
            UnknownRecipient: no agent has that address.
            MessageTooLarge: the message is over the size limit.
            InvalidInput: an empty text, a negative time, or no such message to reply to.
            StreamFull: the recipient's inbox is full.
            StateUnwritable: the disk is full.
            RequestTimeout, BusDisconnected: perhaps sent; send again with the same key.
        """
        if not text.strip() or expires_in < 0:
            raise InvalidInput("a message needs a text, and cannot expire before it is sent")
        author, to = await self._database.read(
            lambda store: (self._sender(store, sender), resolve(store, self._org, recipient))
        )
        if reply_to:
            await self._check_reply(reply_to, author.agent.uid, to.uid)
        now = self._clock()

        def envelope(message_id: str) -> Envelope:
            return Envelope(
                id=message_id,
                to=to.uid,
                message=_message(author.agent, message_id, text),
                sent_at=now,
                expects_reply=expects_reply,
                reply_to=reply_to,
                expires_at=now + expires_in if expires_in else 0.0,
            )

        def earlier(message_id: str) -> Awaitable[MessageRow | None]:
            return self._database.read(lambda store: store.messages.message_of(sender, message_id))

        subject = subjects.inbox(to.uid, author.agent.uid)
        done = await self._submit(author, to.uid, subject, key, envelope, earlier)
        if not done.sequence:
            return await self.get(done.id)
        self._remember(done.id, partial(earlier, done.id))
        if folded:
            row = await self._fold_of(done.id)
            if row is not None:
                return await self._show(row)
        return _accepted(done, author.agent, to, text)

    async def post(self, sender: str, project: str, text: str, *, key: str = "") -> Post:
        """Post to a project's feed; on return the post is in the log, on disk. The caller checks that `sender` may.

        Raises:
            InvalidName, InvalidInput: the project's name is not valid, or the text is empty.
            MessageTooLarge: nothing was posted.
            RequestTimeout, BusDisconnected: perhaps posted; post again with the same key.
        """
        check_name(project, "project")
        if not text.strip():
            raise InvalidInput("a post needs a text")
        author = await self._database.read(lambda store: self._sender(store, sender))
        to = f"#{project}"

        def envelope(post_id: str) -> Envelope:
            return Envelope(post_id, to, _message(author.agent, post_id, text), self._clock())

        def earlier(post_id: str) -> Awaitable[PostRow | None]:
            return self._database.read(lambda store: store.records.post_of(sender, post_id))

        subject = subjects.feed(project, author.agent.uid)
        done = await self._submit(author, to, subject, key, envelope, earlier)
        row = await self._folded(done.id, partial(earlier, done.id))
        row = row or PostRow(done.sequence, done.id, project, sender, text, "", self._clock())
        return (await self._database.read(lambda store: views.posts(store, [row])))[0]

    async def mark_seen(self, reader: str, message_id: str) -> Mail:
        """Record that the person `reader` has read a message addressed to them.

        Raises:
            NotFound: `reader` has no such message.
            StreamFull, RequestTimeout, BusDisconnected: perhaps not recorded; call again.
        """
        row = await self._row(message_id)
        if row.recipient != reader:
            raise NotFound(f"there is no message {message_id!r} to you")
        if not reached(State(row.state), State.SEEN) and not row.final:
            receipt = Receipt(row.id, reader, State.SEEN, self._clock())
            # Stored under the reader's own uid, since the reader has seen it.
            await self._bus.publish(subjects.receipts(row.sender, reader), receipt.encode())
        return await self.wait(message_id, State.SEEN, FOLD_WAIT)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, ref: str) -> str:
        """The id of a message, from that id or from at least four leading digits; `ref` itself if no message fits."""
        if ref in self._unfolded or ID_PREFIX.fullmatch(ref) is None:
            return ref
        limit = MAX_CANDIDATES + 1
        known = await self._database.read(lambda store: store.messages.ids_by_prefix(ref, limit))
        sent = {one for one in self._unfolded if one.startswith(ref)}
        return ref if ref in known else only_one(ref, sent.union(known), "messages") or ref

    async def get(self, message_id: str) -> Mail:
        """The message with that id."""
        return await self._show(await self._row(message_id))

    async def wait(self, message_id: str, wanted: State, timeout: float) -> Mail:
        """The message once it has reached `wanted` or is final; after `timeout` seconds as it is, with `timed_out`.

        Raises:
            RequestTimeout: the message was accepted, but the log cannot be read now.
            Refused: too many callers wait.
        """

        def done(row: MessageRow) -> bool:
            return row.final or reached(State(row.state), wanted)

        row = await self._changes.until(
            of_message(message_id),
            lambda: self._known(message_id),
            lambda row: row is not None and done(row),
            timeout,
        )
        if row is None:
            raise _not_yet(message_id)
        return replace(await self._show(row), timed_out=not done(row))

    async def inbox(self, uid: str, *, unread: bool = False, limit: int = PAGE) -> list[Mail]:
        """The newest messages to `uid`, oldest first."""
        await self._catch_up()
        return await self._database.read(
            lambda store: views.mails(store, store.messages.inbox(uid, unread=unread, limit=limit))
        )

    async def chat(
        self, one: str, other: str, *, limit: int = PAGE, before: int = 0, after: int = 0
    ) -> list[Mail]:
        """Messages between two uids, oldest first: the newest `limit`, or the first `limit` past `after`."""
        await self._catch_up()

        def find(store: Store) -> list[Mail]:
            rows = store.messages.chat(one, other, limit=limit, before=before, after=after)
            return views.mails(store, rows)

        return await self._database.read(find)

    async def posts(
        self, project: str, *, limit: int = PAGE, before: int = 0, after: int = 0
    ) -> list[Post]:
        """Posts of a project, oldest first: the newest `limit`, or the first `limit` past `after`."""

        def find(store: Store) -> list[Post]:
            rows = store.records.project_posts(project, limit=limit, before=before, after=after)
            return views.posts(store, rows)

        return await self._database.read(find)

    async def projects(self) -> list[str]:
        """The names of all projects: those of every agent, removed ones too, and those of every post."""
        return await self._database.read(lambda store: store.records.projects(DEFAULT_PROJECT))

    async def unread(self, uids: Sequence[str]) -> dict[str, int]:
        """The number of messages that each of `uids` has not seen and still could."""
        return await self._database.read(lambda store: store.messages.unread_counts(uids))

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    def _sender(self, store: Store, uid: str) -> _Sender:
        agent = store.agents.agent_by_uid(uid)
        secret = store.agents.message_secret(uid)
        if agent is None or secret is None or agent.retired:
            raise NotFound(f"there is no agent with the uid {uid!r}")
        return _Sender(agent, secret)

    async def _check_reply(self, message_id: str, answerer: str, asker: str) -> None:
        row = await self._database.read(lambda store: store.messages.message_of(asker, message_id))
        if row is None or row.recipient != answerer:
            raise InvalidInput(f"there is no message {message_id!r} from them to you to reply to")

    async def _submit(
        self,
        author: _Sender,
        to: str,
        subject: str,
        key: str,
        envelope: Callable[[str], Envelope],
        earlier: Callable[[str], Awaitable[object | None]],
    ) -> Submission:
        self._space()
        return await submit(
            self._bus,
            self._admin,
            secret=author.secret,
            recipient=to,
            subject=subject,
            key=key,
            envelope=envelope,
            earlier=earlier,
            new_key=self._new_key,
        )

    async def _folded(self, record: str, read: Callable[[], Awaitable[T | None]]) -> T | None:
        return await self._changes.until(
            of_message(record), read, lambda row: row is not None, FOLD_WAIT
        )

    def _remember(self, sent: str, read: Callable[[], Awaitable[MessageRow | None]]) -> None:
        self._unfolded[sent] = read
        while len(self._unfolded) > MAX_UNFOLDED:
            del self._unfolded[next(iter(self._unfolded))]

    async def _catch_up(self) -> None:
        """Wait until our own messages are folded, so that their sender finds them."""
        sent = list(self._unfolded)
        # The fold keeps the order of the log, so the last message sent is the last one to arrive, or next to it.
        if sent and await self._fold_of(sent[-1]) is not None:
            for message_id in sent:
                self._unfolded.pop(message_id, None)

    async def _fold_of(self, message_id: str) -> MessageRow | None:
        """The row of a message of ours that may not be folded yet; None if it is not ours, or the fold takes too
        long.
        """
        read = self._unfolded.get(message_id)
        if read is None:
            return None
        row = await self._folded(message_id, read)
        if row is not None:
            self._unfolded.pop(message_id, None)
        return row

    async def _row(self, message_id: str) -> MessageRow:
        await self._fold_of(message_id)
        row = await self._known(message_id)
        if row is None:
            raise _not_yet(message_id)
        return row

    async def _known(self, message_id: str) -> MessageRow | None:
        """The row; None for a message that was accepted and is not folded yet."""
        sent = message_id in self._unfolded
        row = await self._database.read(lambda store: store.messages.message_by_id(message_id))
        if row is None and not sent:
            raise NotFound(f"there is no message {message_id!r}")
        return row

    async def _show(self, row: MessageRow) -> Mail:
        return (await self._database.read(lambda store: views.mails(store, [row])))[0]


def _not_yet(message_id: str) -> RequestTimeout:
    return RequestTimeout(
        f"message {message_id!r} was accepted, and nothing more is known of it yet",
        remedy="ask again",
    )


def _message(author: Agent, message_id: str, text: str) -> dict[str, object]:
    role = ROLE_USER if author.kind == "human" else ROLE_AGENT
    return text_message(message_id, text, role=role)


def _accepted(done: Submission, sender: Agent, recipient: Agent, text: str) -> Mail:
    """An accepted message, before anything else is known of it."""
    envelope = done.envelope
    return Mail(
        seq=done.sequence,
        id=done.id,
        sender=Party(sender.uid, sender.nick, sender.kind),
        recipient=Party(recipient.uid, recipient.nick, recipient.kind),
        text=text,
        state=State.ACCEPTED,
        reason="",
        expects_reply=envelope.expects_reply,
        reply_to=envelope.reply_to,
        requeue_of="",
        sent_at=envelope.sent_at,
        updated_at=envelope.sent_at,
        final=False,
    )
