"""The post office for people, services and the API: send and post, read messages and posts, wait for their receipts.

Agents in sandboxes do not call it: their sidecars publish on the bus, and the fold treats both alike. What the post
office has accepted itself is remembered until it is folded, so that who sent a message finds it at once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from postroom.directory.agents import Takers, check_files, resolve
from postroom.directory.grants import Decisions, GrantScope, reach
from postroom.errors import InvalidInput, MessageAltered, NotFound, RequestTimeout
from postroom.mail import views
from postroom.mail.limits import PairLimits, is_limited
from postroom.mail.views import Mail, Post, Thread
from postroom.projection.changes import (
    FOLD_WAIT,
    Change,
    ChangeListener,
    Changes,
    of_message,
)
from postroom.projection.submit import Author, Submitter, author_of
from postroom.protocol import shapes, subjects
from postroom.protocol.content import Content, content, subject_of
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import ID_PREFIX, MAX_CANDIDATES, check_name, only_one
from postroom.protocol.receipts import State, reached
from postroom.settings import DEFAULT_ORG, DEFAULT_PROJECT
from postroom.store.agents import Agent, Party
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.records import PostRow
from postroom.store.words import words_of
from postroom_a2a import strict_json
from postroom_a2a.messages import context_of, text_of

MAX_UNFOLDED = 4096
"""Own messages that are remembered until the next read; older ones were folded long ago."""

PAGE = 50
"""Messages or posts of one answer where the caller names no limit."""


class MailReader:
    """The messages and posts of an organisation; the caller has checked who may read them."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        # Own messages that are accepted and perhaps not folded yet: who lists messages waits for them.
        self._unfolded: dict[str, Mail] = {}
        changes.tap(self._folded)

    async def find(self, ref: str, only: str = "") -> str:
        """The id of a message, from that id or from at least four leading digits; `ref` itself if no message fits.

        Args:
            only: uid of the only party whose messages count (`Principal.only`), "" for everybody's.
        """
        if ref in self._unfolded or ID_PREFIX.fullmatch(ref) is None:
            return ref
        limit = MAX_CANDIDATES + 1
        # First, since a message may be folded while the database is read.
        sent = {
            one
            for one, mail in self._unfolded.items()
            if one.startswith(ref) and _is_of(mail, only)
        }
        known = await self._database.point(
            lambda store: store.messages.ids_by_prefix(ref, limit, only)
        )
        return ref if ref in known else only_one(ref, sent.union(known), "messages") or ref

    async def get(self, message_id: str, only: str = "") -> Mail:
        """The message with that id; with `only` (see `find`) another's is not there."""
        with self._changes.listen(of_message(message_id)) as listener:
            return await self._until(listener, message_id, State.ACCEPTED, FOLD_WAIT, only=only)

    async def wait(self, message_id: str, wanted: State, timeout: float, only: str = "") -> Mail:
        """The message once it has reached `wanted` or is final; after `timeout` seconds as it is, with `timed_out`.

        Raises:
            NotFound: nobody knows it, or it is another's than `only` (see `find`).
            RequestTimeout: the message was accepted, but the log cannot be read now.
            Refused: too many callers wait.
        """
        with self._changes.listen(of_message(message_id)) as listener:
            mail = await self._until(listener, message_id, wanted, timeout, only=only)
        return replace(mail, timed_out=not _is(mail, wanted))

    async def chat(
        self, one: str, other: str, *, limit: int = PAGE, before: int = 0, after: int = 0
    ) -> list[Mail]:
        """Messages between two uids, oldest first: the newest `limit`, or the first `limit` past `after`."""
        await self.catch_up()

        def find(store: Store) -> list[Mail]:
            rows = store.messages.chat(one, other, limit=limit, before=before, after=after)
            return views.mails(store, rows)

        return await self._database.read(find)

    async def search(
        self,
        text: str = "",
        *,
        thread: str = "",
        other: str = "",
        seer: str = "",
        limit: int = PAGE,
        before: int = 0,
    ) -> list[Mail]:
        """The newest messages of a thread, with each word of `text`, newest first.

        Args:
            other: uid of a party, "" for any.
            seer: uid of who must be a party, too; "" for who sees all messages.
        """
        words = words_of(text, thread)
        await self.catch_up()
        parties = {uid for uid in (other, seer) if uid}

        def find(store: Store) -> list[Mail]:
            rows = store.messages.search(
                words=words, thread=thread, parties=parties, limit=limit, before=before
            )
            return views.mails(store, rows)

        return await self._database.read(find)

    async def search_posts(
        self, project: str, text: str, *, limit: int = PAGE, before: int = 0
    ) -> list[Post]:
        """The newest posts of a project with each word of `text`, oldest first."""
        words = words_of(text)

        def find(store: Store) -> list[Post]:
            rows = store.records.search_posts(project, words, limit=limit, before=before)
            return views.posts(store, rows)

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

    async def threads(self, uid: str, *, limit: int = PAGE, before: int = 0) -> list[Thread]:
        """The threads of `uid`, the one with the newest message first.

        Args:
            before: only those whose last message is below this sequence; 0 for all.
        """
        await self.catch_up()
        return await self._database.read(
            lambda store: views.threads(store, uid, store.threads.page(uid, before, limit))
        )

    async def feeds(self, reader: str) -> list[shapes.Feed]:
        """How far `reader` has read the feeds of all projects."""

        def find(store: Store) -> list[shapes.Feed]:
            read = store.reading.feeds(reader)
            return [
                _feed(store, reader, project, read.get(project, 0))
                for project in store.records.projects(DEFAULT_PROJECT)
            ]

        return await self._database.read(find)

    async def read_feed(self, reader: str, project: str, seq: int = 0) -> shapes.Feed:
        """Note that `reader` has read the posts of a project up to `seq`, or all. A mark never goes back."""

        def note(store: Store) -> shapes.Feed:
            read = store.reading.read_feed(reader, project, seq or 2**62)
            return _feed(store, reader, project, read)

        return await self._database.write(note, accounts=False)

    async def unread(self, uids: Sequence[str]) -> dict[str, int]:
        """The number of messages that each of `uids` has not seen and still could."""
        return await self._database.read(lambda store: store.messages.unread_counts(uids))

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    def _remember(self, sent: Mail) -> None:
        self._unfolded[sent.id] = sent
        while len(self._unfolded) > MAX_UNFOLDED:
            del self._unfolded[next(iter(self._unfolded))]

    def _folded(self, change: Change) -> None:
        if change.kind == "mail":
            self._unfolded.pop(change.id, None)

    async def catch_up(self) -> None:
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
        only: str = "",
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
            if sent is not None and _is_of(sent, only):
                return sent, False
            return await self._read(message_id, only)

        def done(found: tuple[Mail | None, bool]) -> bool:
            mail, folded = found
            return folded and mail is not None and _is(mail, wanted)

        mail, folded = await listener.until(read, done, timeout, _brought)
        if not folded:
            mail, folded = await self._read(message_id)
        if mail is None or not folded:
            raise _not_yet(message_id)
        unanswered = mail.state is State.ANSWERED and mail.answer is None
        if mail.state is State.DEAD or unanswered or mail.unsized:
            # With the attempts of its dead letter, and the sizes of its files.
            mail, _ = await self._read(message_id)
        if mail is None:
            raise _not_yet(message_id)
        return mail

    async def _read(self, message_id: str, only: str = "") -> tuple[Mail | None, bool]:
        """The message, and whether it is folded.

        Raises:
            NotFound: nobody knows it.
            MessageAltered: it is not as it was stored.
        """
        sent = self._unfolded.get(message_id)

        def find(store: Store) -> Mail | None:
            row = store.messages.message_by_id(message_id)
            if row is not None and row.altered:
                raise MessageAltered(
                    f"message {message_id!r} is not as it was stored, so it is not shown",
                    remedy="its operator finds all such messages: postroom admin verify",
                )
            return None if row is None else views.mails(store, [row])[0]

        mail = await self._database.point(find)
        if (mail or sent) is not None and not _is_of(mail or sent, only):
            raise NotFound(f"there is no message {message_id!r}")
        if mail is not None:
            self._unfolded.pop(message_id, None)
            return mail, True
        if sent is None:
            raise NotFound(f"there is no message {message_id!r}")
        return sent, False


def _feed(store: Store, reader: str, project: str, read: int) -> shapes.Feed:
    unread = store.reading.new_posts(reader, project, read)
    return {"project": project, "read": read, "unread": unread}


def _is_of(mail: Mail | None, only: str) -> bool:
    return not only or (mail is not None and only in (mail.sender.uid, mail.recipient.uid))


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


class PostOffice(MailReader):
    """Send, read and wait, in the name of an agent that the caller has authenticated.

    Args:
        takers: asked whether a recipient takes what is said; by default everybody takes everything.
        decisions: who is let in, while it is acted on.
        limits: of pairs; by default none.
    """

    def __init__(
        self,
        submitter: Submitter,
        database: Database,
        changes: Changes,
        *,
        org: str = DEFAULT_ORG,
        clock: Callable[[], float] = time.time,
        takers: Takers | None = None,
        decisions: Decisions | None = None,
        limits: PairLimits | None = None,
    ) -> None:
        super().__init__(database, changes)
        self._decisions = decisions or Decisions()
        self._limits = limits or PairLimits()
        self._submitter = submitter
        self._org = org
        self._clock = clock
        self._takers = takers or Takers()

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
        removed: bool = False,
    ) -> Mail:
        """Send a message; on return it is in the log, on disk.

        Unless stated otherwise, an error means that nothing was sent.

        Args:
            recipient: `@nick`, `@nick.org` or uid.
            said: a text stands for a content of one part. A reply without a thread stays in that of its message.
            expects_reply: the message ends `answered` and not `seen`.
            key: idempotency key: one key and one recipient give one message. "" for a new message.
            reply_to: id of a message from `recipient` that this one answers.
            expires_in: seconds until delivery stops, 0 for never.
            folded: return after the fold; otherwise only later reads wait for it.
            removed: also in the name of an agent that was removed, to whom it worked for, whomever they let in.

        Raises:
            UnknownRecipient: no agent of the organisation has that nick.
            NotLetIn: there is no such agent, or it has not let the sender in.
            MessageTooLarge: the message is over the size limit.
            ContentNotTaken: the recipient's card says that it does not take a part.
            InvalidInput: nothing is said, a malformed part, a blob that the sender may not read, a negative time, or
                no such message to reply to.
            Conflict: a message was sent under that key that is kept no more.
            StreamFull: the recipient's inbox is full.
            TooManyRequests: too many messages came to a recipient that is reached by grants alone, or wait for it.
            StateUnwritable: the disk is full.
            RequestTimeout, BusDisconnected: perhaps sent; send again with the same key.
        """
        with self._decisions.taking():
            return await self._send(
                sender,
                recipient,
                content(said),
                expects_reply=expects_reply,
                key=key,
                reply_to=reply_to,
                expires_in=expires_in,
                folded=folded,
                removed=removed,
            )

    async def _send(
        self,
        sender: str,
        recipient: str,
        said: Content,
        *,
        expects_reply: bool,
        key: str,
        reply_to: str,
        expires_in: float,
        folded: bool,
        removed: bool,
    ) -> Mail:
        if expires_in < 0:
            raise InvalidInput("a message cannot expire before it is sent")
        now = self._clock()

        limited = False

        def check(store: Store) -> tuple[Author, Agent, dict[str, int], MessageRow | None]:
            nonlocal limited
            asked = store.messages.message_by_id(reply_to) if reply_to else None
            if asked is not None and asked.recipient != sender:
                asked = None
            author = author_of(store, sender, removed=removed)
            if removed:
                to = resolve(store, self._org, recipient)
            else:
                asker = asked.sender if asked is not None else ""
                scope = GrantScope.MESSAGE
                found = reach(store, self._org, sender, recipient, scope, now, asker=asker)
                limited, to = is_limited(self._org, found), found.agent
            sizes = check_files(store, sender, said)
            if limited and not key:
                self._limits.admit(store, sender, to.uid, size_of(author))
            return author, to, sizes, asked

        def size_of(author: Author) -> int:
            return len(strict_json.dumps(said.message("", author.role)))

        author, to, sizes, asked = await self._database.point(check)
        await self._takers.check(to, said)
        if reply_to:
            if asked is None or asked.sender != to.uid:
                raise InvalidInput(f"there is no message {reply_to!r} from them to you to reply to")
            said = said if said.thread else replace(said, thread=asked.context_id)
        parties = author.agent.party, to.party_in(self._org)

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
                self._remember(_accepted(new, *parties, sizes=sizes))
                made.append(message_id)
                if listener is not None:
                    listener.join((of_message(message_id),))
                return new

            def sent_before(store: Store, message_id: str) -> MessageRow | None:
                found = store.messages.earlier(sender, message_id)
                if limited and found is None:  # what was sent before is never refused
                    self._limits.admit(store, sender, to.uid, size_of(author))
                return found

            def earlier(message_id: str) -> Awaitable[MessageRow | None]:
                return self._database.point(lambda store: sent_before(store, message_id))

            subject = subjects.inbox(to.uid, author.agent.uid)
            try:
                done = await self._submitter.submit(author, to.uid, subject, key, envelope, earlier)
            except BaseException:
                self._forget(made)
                raise
            if not done.sequence:
                self._forget(made)
                return await self.get(done.id)
            mail = _accepted(done.envelope, *parties, done.sequence, sizes)
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
        author, sizes = await self._database.point(
            lambda store: (author_of(store, sender), check_files(store, sender, said))
        )
        to = f"#{project}"

        def envelope(post_id: str) -> Envelope:
            message = said.message(post_id, author.role)
            return Envelope(post_id, to, message, self._clock())

        def earlier(post_id: str) -> Awaitable[PostRow | None]:
            return self._database.point(lambda store: store.records.post_of(sender, post_id))

        subject = subjects.feed(project, author.agent.uid)
        done = await self._submitter.submit(author, to, subject, key, envelope, earlier)
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
        return views.post(row, author.agent.party, sizes)


def _accepted(
    envelope: Envelope,
    sender: Party,
    recipient: Party,
    sequence: int = 0,
    sizes: dict[str, int] | None = None,
) -> Mail:
    """An accepted message, before anything else is known of it."""
    return Mail(
        seq=sequence,
        id=envelope.id,
        sender=sender,
        recipient=recipient,
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
        sizes=sizes,
        expires_at=envelope.expires_at,
    )
