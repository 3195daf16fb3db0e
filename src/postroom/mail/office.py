"""The post office for people, services and the API: send and post; it reads and waits as a `MailReader`.

Agents in sandboxes do not call it: their sidecars publish on the bus, and the fold treats both alike.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace

from postroom.directory.agents import Takers, check_files, resolve
from postroom.errors import InvalidInput
from postroom.mail import views
from postroom.mail.reading import MailReader
from postroom.mail.views import Mail, Post
from postroom.projection.changes import (
    FOLD_WAIT,
    Changes,
    of_message,
)
from postroom.projection.submit import Submitter, author_of
from postroom.protocol import subjects
from postroom.protocol.content import Content, content, subject_of
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import check_name
from postroom.protocol.receipts import State
from postroom.settings import DEFAULT_ORG
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.messages import MessageRow
from postroom.store.records import PostRow
from postroom_a2a import strict_json
from postroom_a2a.messages import context_of, text_of


class PostOffice(MailReader):
    """Send, read and wait, in the name of an agent that the caller has authenticated.

    Args:
        takers: asked whether a recipient takes what is said; by default everybody takes everything.
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
    ) -> None:
        super().__init__(database, changes)
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
            ContentNotTaken: the recipient's card says that it does not take a part.
            InvalidInput: nothing is said, a malformed part, a blob that the sender may not read, a negative time, or
                no such message to reply to.
            StreamFull: the recipient's inbox is full.
            StateUnwritable: the disk is full.
            RequestTimeout, BusDisconnected: perhaps sent; send again with the same key.
        """
        said = content(said)
        if expires_in < 0:
            raise InvalidInput("a message cannot expire before it is sent")
        author, to, sizes = await self._database.point(
            lambda store: (
                author_of(store, sender),
                resolve(store, self._org, recipient),
                check_files(store, sender, said),
            )
        )
        await self._takers.check(to, said)
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
                self._remember(_accepted(new, author.agent, to, sizes=sizes))
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
                done = await self._submitter.submit(author, to.uid, subject, key, envelope, earlier)
            except BaseException:
                self._forget(made)
                raise
            if not done.sequence:
                self._forget(made)
                return await self.get(done.id)
            mail = _accepted(done.envelope, author.agent, to, done.sequence, sizes)
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

    async def _check_reply(self, message_id: str, answerer: str, asker: str) -> str:
        """The thread of the message that is replied to."""
        row = await self._database.point(lambda store: store.messages.message_of(asker, message_id))
        if row is None or row.recipient != answerer:
            raise InvalidInput(f"there is no message {message_id!r} from them to you to reply to")
        return row.context_id


def _accepted(
    envelope: Envelope,
    sender: Agent,
    recipient: Agent,
    sequence: int = 0,
    sizes: dict[str, int] | None = None,
) -> Mail:
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
        sizes=sizes,
    )
