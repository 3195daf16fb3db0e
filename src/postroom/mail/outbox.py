"""Announcements: what an agent says to everybody of its organisation, kept on its outbox.

Nobody is woken by one, and none has receipts: who wants to know reads the outbox, or follows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.bus.port import Message
from postroom.directory.agents import check_files
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.mail.views import sizes_of
from postroom.observe import get_logger
from postroom.projection.changes import FOLD_WAIT, Change, Changes, of_message
from postroom.projection.retention import Over
from postroom.projection.rules import Rule
from postroom.projection.submit import Submitter, author_of
from postroom.protocol import shapes, subjects
from postroom.protocol.content import Content, content, said, subject_of
from postroom.protocol.envelope import EVERYBODY, Envelope
from postroom.store.agents import Party
from postroom.store.database import Database, Store
from postroom.store.messages import AnnouncementRow
from postroom_a2a import strict_json
from postroom_a2a.messages import context_of, text_of
from postroom_a2a.times import format_time

log = get_logger(__name__)

PAGE = 50
"""Announcements of one answer where the caller names no limit."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What an agent announced.

    Attributes:
        message: A2A Message.
        sizes: bytes of the blobs that it names and its sender may read, by hash.
    """

    seq: int
    id: str
    sender: Party
    text: str
    message: dict[str, Any]
    at: float
    sizes: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> shapes.Announcement:
        """Shape of the API."""
        return {
            "seq": self.seq,
            "id": self.id,
            "from": self.sender.as_json(),
            "text": self.text,
            **said(self.message, self.sizes),
            "subject": subject_of(self.message),
            "thread": context_of(self.message) or None,
            "at": format_time(self.at),
        }


class Outbox:
    """The announcements of an organisation."""

    def __init__(
        self,
        submitter: Submitter,
        database: Database,
        changes: Changes,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._submitter = submitter
        self._database = database
        self._changes = changes
        self._clock = clock

    async def announce(self, sender: str, what: Content | str, *, key: str = "") -> Announcement:
        """Announce in the name of `sender`; on return the announcement is in the log, on disk.

        Raises:
            InvalidInput: nothing is said, a part is malformed, or names a blob that `sender` may not read.
            MessageTooLarge: nothing was announced.
            RequestTimeout, BusDisconnected: perhaps announced; announce again with the same key.
        """
        checked = content(what)
        author, sizes = await self._database.point(
            lambda store: (author_of(store, sender), check_files(store, sender, checked))
        )

        def envelope(made: str) -> Envelope:
            return Envelope(made, EVERYBODY, checked.message(made, author.role), self._clock())

        def earlier(made: str) -> Awaitable[AnnouncementRow | None]:
            return self._database.point(lambda store: store.announcements.by_id(sender, made))

        subject = subjects.outbox(sender)
        done = await self._submitter.submit(author, EVERYBODY, subject, key, envelope, earlier)
        row = await self._changes.until(
            of_message(done.id),
            lambda: earlier(done.id),
            lambda row: row is not None,
            FOLD_WAIT,
            lambda row, change: change.row if change.kind == "announcement" else row,
        )
        row = row or _row(done.sequence, done.envelope, sender, self._clock())
        return announcement(row, author.agent.party, sizes)

    async def of(
        self, sender: str, *, limit: int = PAGE, before: int = 0, after: int | None = None
    ) -> list[Announcement]:
        """Announcements of an agent, oldest first: the newest `limit`, or the first `limit` past `after`."""

        def find(store: Store) -> list[Announcement]:
            rows = store.announcements.of(sender, limit=limit, before=before, after=after)
            return _shown(store, rows)

        return await self._database.read(find)


def _shown(store: Store, rows: Sequence[AnnouncementRow]) -> list[Announcement]:
    known = store.agents.parties(row.sender for row in rows)
    sizes = sizes_of(store, ((row.sender, row.message) for row in rows))
    return [announcement(row, known[row.sender], sizes[row.sender]) for row in rows]


def announcement(row: AnnouncementRow, sender: Party, sizes: Mapping[str, int]) -> Announcement:
    """One announcement."""
    message = json.loads(row.message)
    return Announcement(row.seq, row.id, sender, row.text, message, row.at, sizes)


# ── the fold ────────────────────────────────────────────────────────────────────────────────────────────────


def _fold_announcement(store: Store, record: Message) -> list[Change]:
    try:
        named = subjects.parse(record.subject)
        envelope = Envelope.decode(record.payload)
    except (InvalidInput, ProtocolViolation) as error:
        log.warning("record %d of OUTBOX is no announcement: %s", record.sequence, error)
        return []
    if named.kind != "outbox" or envelope.to != EVERYBODY:
        return []
    row = _row(record.sequence, envelope, named.sender, record.timestamp)
    if not store.announcements.insert(row):
        return []
    return [Change("announcement", row.seq, row.id, row.sender, row=row)]


def _row(seq: int, envelope: Envelope, sender: str, at: float) -> AnnouncementRow:
    message = strict_json.dumps(envelope.message).decode()
    return AnnouncementRow(seq, envelope.id, sender, text_of(envelope.message), message, at)


def _over(store: Store, record: Message, _: float) -> bool:
    return not store.announcements.has(record.sequence)


RULES: dict[str, tuple[Rule, ...]] = {"OUTBOX": (_fold_announcement,)}

OVER: dict[str, Over] = {"OUTBOX": Over(_over)}
"""What is no announcement, or was given up (`store.pruning`), also leaves the log before its time there is over."""
