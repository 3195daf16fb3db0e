"""Reading messages and posts, and waiting for their receipts.

What the post office has accepted itself is remembered until it is folded, so that who sent a message finds it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

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
from postroom.protocol.ids import ID_PREFIX, MAX_CANDIDATES, only_one
from postroom.protocol.limits import MAX_WORDS
from postroom.protocol.receipts import State, reached
from postroom.settings import DEFAULT_PROJECT
from postroom.store.database import Database, Store

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
        words = _words(text, thread)
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
        words = _words(text)

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
        """The message, and whether it is folded; raises NotFound where nobody knows it."""
        sent = self._unfolded.get(message_id)

        def find(store: Store) -> Mail | None:
            row = store.messages.message_by_id(message_id)
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


def _words(text: str, thread: str = "") -> list[str]:
    """The words of a search.

    Raises:
        InvalidInput: there are too many, or what no text has.
    """
    words = text.split()
    if len(words) > MAX_WORDS:
        raise InvalidInput(f"a search has at most {MAX_WORDS} words")
    if "\0" in f"{text}{thread}":  # PostgreSQL takes no such text
        raise InvalidInput("a search has no NUL characters")
    return words
