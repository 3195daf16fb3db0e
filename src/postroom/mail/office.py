"""The post office for people, services and the API: send, post, read, wait.

Agents in sandboxes do not call it: their sidecars publish on the bus, and the fold treats both alike.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from postroom.bus.port import BusAdmin, MessageBusProvider
from postroom.directory.agents import resolve
from postroom.errors import InvalidInput, NotFound, RequestTimeout
from postroom.mail import views
from postroom.mail.views import Mail, Post
from postroom.projection.changes import (
    FOLD_WAIT,
    Change,
    ChangeListener,
    Changes,
    of_message,
)
from postroom.projection.submit import Author, Submission, author_of, submit
from postroom.protocol import subjects
from postroom.protocol.content import Content, content, subject_of
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import ID_PREFIX, MAX_CANDIDATES, check_name, only_one
from postroom.protocol.receipts import Receipt, State, reached
from postroom.settings import DEFAULT_ORG, DEFAULT_PROJECT
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.records import PostRow
from postroom_a2a import strict_json
from postroom_a2a.messages import context_of, text_of

MAX_UNFOLDED = 4096
"""Own messages that are remembered until the next read; older ones were folded long ago."""

PAGE = 50
"""Messages or posts of one answer where the caller names no limit."""


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
        # Own messages that are accepted and perhaps not folded yet: who lists messages waits for them.
        self._unfolded: dict[str, Mail] = {}
        changes.tap(self._folded)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        sender: str,
        recipient: str,
        said: Content | str,
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
            said: a text stands for a content of one part. A reply without a thread stays in that of its message.
            expects_reply: the message ends `answered` and not `seen`.
            key: idempotency key: one key and one recipient give one message. "" for a new message.
            reply_to: id of a message from `recipient` that this one answers.
            expires_in: seconds until delivery stops, 0 for never.
            folded: return after the fold; otherwise only later reads wait for it.

        Raises:
            UnknownRecipient: no agent has that address.
            MessageTooLarge: the message is over the size limit.
            InvalidInput: nothing is said, a malformed part, a negative time, or no such message to reply to.
            StreamFull: the recipient's inbox is full.
            StateUnwritable: the disk is full.
            RequestTimeout, BusDisconnected: perhaps sent; send again with the same key.
        """
        said = content(said)
        if expires_in < 0:
            raise InvalidInput("a message cannot expire before it is sent")
        author, to = await self._database.point(
            lambda store: (author_of(store, sender), resolve(store, self._org, recipient))
        )
        if reply_to:
            thread = await self._check_reply(reply_to, author.agent.uid, to.uid)
            said = said if said.thread else replace(said, thread=thread)
        now = self._clock()

        listening = self._changes.listen() if folded else nullcontext()
        made: list[str] = []
        with listening as listener:

            def envelope(message_id: str) -> Envelope:
                new = Envelope(
                    id=message_id,
                    to=to.uid,
                    message=said.message(message_id, author.role),
                    sent_at=now,
                    expects_reply=expects_reply,
                    reply_to=reply_to,
                    expires_at=now + expires_in if expires_in else 0.0,
                )
                # Before it is stored, since its fold may be faster than the answer of the log.
                self._remember(_accepted(new, author.agent, to))
                made.append(message_id)
                if listener is not None:
                    listener.join((of_message(message_id),))
                return new

            def earlier(message_id: str) -> Awaitable[MessageRow | None]:
                return self._database.point(
                    lambda store: store.messages.message_of(sender, message_id)
                )

            subject = subjects.inbox(to.uid, author.agent.uid)
            try:
                done = await self._submit(author, to.uid, subject, key, envelope, earlier)
            except BaseException:
                self._forget(made)
                raise
            if not done.sequence:
                self._forget(made)
                return await self.get(done.id)
            mail = _accepted(done.envelope, author.agent, to, done.sequence)
            found, known = (mail, False) if not done.again else await self._read(done.id)
            if listener is None or known:
                return found or mail
            return await self._with_its_fold(listener, mail)

    async def post(self, sender: str, project: str, said: Content | str, *, key: str = "") -> Post:
        """Post to a project's feed; on return the post is in the log, on disk. The caller checks that `sender` may.

        Raises:
            InvalidName, InvalidInput: the project's name is not valid, nothing is said, or a part is malformed.
            MessageTooLarge: nothing was posted.
            RequestTimeout, BusDisconnected: perhaps posted; post again with the same key.
        """
        check_name(project, "project")
        said = content(said)
        author = await self._database.point(lambda store: author_of(store, sender))
        to = f"#{project}"

        def envelope(post_id: str) -> Envelope:
            message = said.message(post_id, author.role)
            return Envelope(post_id, to, message, self._clock())

        def earlier(post_id: str) -> Awaitable[PostRow | None]:
            return self._database.point(lambda store: store.records.post_of(sender, post_id))

        subject = subjects.feed(project, author.agent.uid)
        done = await self._submit(author, to, subject, key, envelope, earlier)
        row = await self._changes.until(
            of_message(done.id),
            lambda: earlier(done.id),
            lambda row: row is not None,
            FOLD_WAIT,
            lambda row, change: change.row if change.kind == "post" else row,
        )
        if row is None:
            message = strict_json.dumps(done.envelope.message).decode()
            now = self._clock()
            row = PostRow(done.sequence, done.id, project, sender, said.text, message, now)
        return views.post(row, author.agent.party)

    async def mark_seen(self, reader: str, message_id: str) -> Mail:
        """Record that the person `reader` has read a message addressed to them.

        Raises:
            NotFound: `reader` has no such message.
            StreamFull, RequestTimeout, BusDisconnected: perhaps not recorded; call again.
        """
        with self._changes.listen(of_message(message_id)) as listener:
            mail = await self._until(listener, message_id, State.ACCEPTED, FOLD_WAIT)
            if mail.recipient.uid != reader:
                raise NotFound(f"there is no message {message_id!r} to you")
            if not reached(mail.state, State.SEEN) and not mail.final:
                receipt = Receipt(mail.id, reader, State.SEEN, self._clock())
                # Stored under the reader's own uid, since the reader has seen it.
                subject = subjects.receipts(mail.sender.uid, reader)
                await self._bus.publish(subject, receipt.encode())
            return await self._until(listener, message_id, State.SEEN, FOLD_WAIT, mail)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, ref: str) -> str:
        """The id of a message, from that id or from at least four leading digits; `ref` itself if no message fits."""
        if ref in self._unfolded or ID_PREFIX.fullmatch(ref) is None:
            return ref
        limit = MAX_CANDIDATES + 1
        # First, since a message may be folded while the database is read.
        sent = {one for one in self._unfolded if one.startswith(ref)}
        known = await self._database.point(lambda store: store.messages.ids_by_prefix(ref, limit))
        return ref if ref in known else only_one(ref, sent.union(known), "messages") or ref

    async def get(self, message_id: str) -> Mail:
        """The message with that id."""
        with self._changes.listen(of_message(message_id)) as listener:
            return await self._until(listener, message_id, State.ACCEPTED, FOLD_WAIT)

    async def wait(self, message_id: str, wanted: State, timeout: float) -> Mail:
        """The message once it has reached `wanted` or is final; after `timeout` seconds as it is, with `timed_out`.

        Raises:
            RequestTimeout: the message was accepted, but the log cannot be read now.
            Refused: too many callers wait.
        """
        with self._changes.listen(of_message(message_id)) as listener:
            mail = await self._until(listener, message_id, wanted, timeout)
        return replace(mail, timed_out=not _is(mail, wanted))

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

    async def _check_reply(self, message_id: str, answerer: str, asker: str) -> str:
        """The thread of the message that is replied to."""
        row = await self._database.point(lambda store: store.messages.message_of(asker, message_id))
        if row is None or row.recipient != answerer:
            raise InvalidInput(f"there is no message {message_id!r} from them to you to reply to")
        return row.context_id

    async def _submit(
        self,
        author: Author,
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

    def _remember(self, sent: Mail) -> None:
        self._unfolded[sent.id] = sent
        while len(self._unfolded) > MAX_UNFOLDED:
            del self._unfolded[next(iter(self._unfolded))]

    def _folded(self, change: Change) -> None:
        if change.kind == "mail":
            self._unfolded.pop(change.id, None)

    async def _catch_up(self) -> None:
        """Wait until our own messages are folded, so that their sender finds them."""
        sent = list(self._unfolded)
        if not sent:
            return
        # The fold keeps the order of the log, so the last message sent is the last one to arrive, or next to it.
        with self._changes.listen(of_message(sent[-1])) as listener, suppress(RequestTimeout):
            await self._until(listener, sent[-1], State.ACCEPTED, FOLD_WAIT)
            self._forget(sent)

    def _forget(self, ids: Sequence[str]) -> None:
        for message_id in ids:
            self._unfolded.pop(message_id, None)

    async def _with_its_fold(self, listener: ChangeListener, mail: Mail) -> Mail:
        """A message of ours as its fold has made it; as it is if that takes too long."""

        async def first() -> tuple[Mail | None, bool]:
            return mail, False

        found, _ = await listener.until(first, _is_folded, FOLD_WAIT, _brought)
        return found or mail

    async def _until(
        self,
        listener: ChangeListener,
        message_id: str,
        wanted: State,
        timeout: float,
        known: Mail | None = None,
    ) -> Mail:
        """The message once it has reached `wanted` or is final; after `timeout` seconds as it is.

        Args:
            listener: hears of that message.
            known: the message as it was when the listening had begun, None to read it.
        """

        async def read() -> tuple[Mail | None, bool]:
            nonlocal known
            if known is not None:
                first, known = known, None
                return first, True
            # What is not folded is not in SQL, and its fold wakes the listener.
            sent = self._unfolded.get(message_id)
            return (sent, False) if sent is not None else await self._read(message_id)

        def done(found: tuple[Mail | None, bool]) -> bool:
            mail, folded = found
            return folded and mail is not None and _is(mail, wanted)

        mail, folded = await listener.until(read, done, timeout, _brought)
        if not folded:
            mail, folded = await self._read(message_id)
        if mail is None or not folded:
            raise _not_yet(message_id)
        if mail.state is State.DEAD or (mail.state is State.ANSWERED and mail.answer is None):
            mail, _ = await self._read(message_id)  # with the attempts of its dead letter
        if mail is None:
            raise _not_yet(message_id)
        return mail

    async def _read(self, message_id: str) -> tuple[Mail | None, bool]:
        """The message, and whether it is folded; raises NotFound where nobody knows it."""
        sent = self._unfolded.get(message_id)

        def find(store: Store) -> Mail | None:
            row = store.messages.message_by_id(message_id)
            return None if row is None else views.mails(store, [row])[0]

        mail = await self._database.point(find)
        if mail is not None:
            self._unfolded.pop(message_id, None)
            return mail, True
        if sent is None:
            raise NotFound(f"there is no message {message_id!r}")
        return sent, False


def _is(mail: Mail, wanted: State) -> bool:
    return mail.final or reached(mail.state, wanted)


def _is_folded(found: tuple[Mail | None, bool]) -> bool:
    return found[1]


def _brought(found: tuple[Mail | None, bool], change: Change) -> tuple[Mail | None, bool]:
    mail, folded = found
    if mail is None or change.kind not in ("mail", "receipt"):
        return found
    now = views.changed(mail, change.row)
    own = change.id == mail.id and change.sender == mail.sender.uid
    return now, folded or own


def _not_yet(message_id: str) -> RequestTimeout:
    return RequestTimeout(
        f"message {message_id!r} was accepted, and nothing more is known of it yet",
        remedy="ask again",
    )


def _accepted(envelope: Envelope, sender: Agent, recipient: Agent, sequence: int = 0) -> Mail:
    """An accepted message, before anything else is known of it."""
    return Mail(
        seq=sequence,
        id=envelope.id,
        sender=sender.party,
        recipient=recipient.party,
        text=text_of(envelope.message),
        message=envelope.message,
        subject=subject_of(envelope.message),
        thread=context_of(envelope.message),
        state=State.ACCEPTED,
        reason="",
        expects_reply=envelope.expects_reply,
        reply_to=envelope.reply_to,
        requeue_of="",
        sent_at=envelope.sent_at,
        updated_at=envelope.sent_at,
        final=False,
    )
