"""Blobs and their readers, as rows. The contents are files (`blobs.folder`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace

from sqlalchemy import (
    ColumnElement,
    and_,
    delete,
    exists,
    false,
    literal,
    not_,
    or_,
    select,
    update,
)

from postroom.store.schema import EVERYWHERE, agents, blob_readers, blobs
from postroom.store.session import Session, insert_new, upsert, values_of

EVERYBODY = ""
"""Reader of the operator's uploads: every member of the organisation that knows the hash."""

PAGE = 256
"""The most old blobs of one query."""


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A stored blob.

    Attributes:
        sha256: 64 hex digits.
        size: in bytes.
        media_type: the word of its first uploader; only the operator sees it, since it shows that somebody had
            the blob.
        touched_at: when it was uploaded last.
        named: a message or a task has named it.
    """

    sha256: str
    size: int
    media_type: str
    created_at: float
    touched_at: float
    named: bool = False


_STORE = upsert(blobs, ["sha256"], ["touched_at", "size"])
_NEW_READER = insert_new(blob_readers)
_COLUMNS = [blobs.c[field.name] for field in fields(BlobRow)]


def _reads(uid: str) -> ColumnElement[bool]:
    """Whether `uid` is a reader of the blob of the row; strangers and other organisations are not everybody."""
    other = not_(exists().where(agents.c.uid == uid))
    outside = exists().where(
        EVERYWHERE.agents.c.uid == uid, or_(EVERYWHERE.agents.c.joined == "open", other)
    )
    return exists().where(
        blob_readers.c.sha256 == blobs.c.sha256,
        or_(blob_readers.c.uid == uid, and_(blob_readers.c.uid == EVERYBODY, not_(outside))),
    )


def _may_pass_on(uid: str) -> ColumnElement[bool]:
    """Whether `uid` may let others read the blob of the row: one of its readers, or the owner (the first person)."""
    first = select(agents.c.uid).where(agents.c.kind == "human")
    owner = first.order_by(agents.c.created_at, agents.c.uid).limit(1).scalar_subquery()
    return or_(_reads(uid), literal(uid) == owner)


class BlobStore:
    """Blobs, and who may read them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def store_blob(self, row: BlobRow, reader: str) -> BlobRow:
        """Store a blob and its reader; returns its row, which may be older."""
        self._session.run(_STORE, values_of(row))
        self._session.run(_NEW_READER, {"sha256": row.sha256, "uid": reader})
        return self.blob_by_hash(row.sha256) or row

    def touch_readable(self, sha256: str, uid: str, now: float) -> BlobRow | None:
        """The blob, if `uid` may read it; this counts as another upload of it."""
        everything = uid == EVERYBODY
        row = self.blob_by_hash(sha256) if everything else self.readable(sha256, uid)
        return None if row is None else self.store_blob(replace(row, touched_at=now), uid)

    def blob_by_hash(self, sha256: str) -> BlobRow | None:
        """The blob with that hash."""
        return self._session.first(BlobRow, select(*_COLUMNS).where(blobs.c.sha256 == sha256))

    def readable(self, sha256: str, uid: str) -> BlobRow | None:
        """The blob with that hash, if `uid` may read it."""
        found = select(*_COLUMNS).where(blobs.c.sha256 == sha256, _reads(uid))
        return self._session.first(BlobRow, found)

    def pass_on(self, hashes: Collection[str], sender: str, reader: str) -> None:
        """Let `reader` read the blobs that a message or a task of `sender` names, as far as `sender` may read them."""
        if not hashes:
            return
        passed = and_(blobs.c.sha256.in_(hashes), _may_pass_on(sender))
        rows = select(blobs.c.sha256, literal(reader)).where(passed)
        let = self._session.dialect.insert(blob_readers).from_select(["sha256", "uid"], rows)
        self._session.run(let.on_conflict_do_nothing())
        self._session.run(update(blobs).where(passed).values(named=True))

    def sizes(self, hashes: Collection[str], uid: str) -> dict[str, int]:
        """The sizes in bytes of those blobs that `uid` may read."""
        if not hashes:
            return {}
        found = select(blobs.c.sha256, blobs.c.size).where(
            blobs.c.sha256.in_(hashes), _may_pass_on(uid)
        )
        return dict(self._session.rows(found))

    def all_sizes(self) -> dict[str, int]:
        """Bytes of every blob, by hash."""
        return dict(self._session.rows(select(blobs.c.sha256, blobs.c.size)))

    def unnamed_before(self, before: float) -> list[BlobRow]:
        """At most `PAGE` blobs that no message and no task has named and nobody has uploaded since `before`."""
        old = and_(blobs.c.named == false(), blobs.c.touched_at < before)
        found = select(*_COLUMNS).where(old).order_by(blobs.c.touched_at).limit(PAGE)
        return self._session.all(BlobRow, found)

    def forget_unnamed(self, sha256: str, before: float) -> bool:
        """Forget one of `unnamed_before`; False if the blob is no longer one of them."""
        old = and_(blobs.c.sha256 == sha256, blobs.c.named == false(), blobs.c.touched_at < before)
        return self._session.run(delete(blobs).where(old)) == 1

    def forget(self, sha256: str) -> bool:
        """Forget a blob and its readers; False if it does not exist."""
        return self._session.run(delete(blobs).where(blobs.c.sha256 == sha256)) == 1

    def largest(self, limit: int, after: str = "") -> list[BlobRow]:
        """Blobs, the largest first; with `after` those that come after the blob with that hash."""
        found = select(*_COLUMNS).order_by(blobs.c.size.desc(), blobs.c.sha256).limit(limit)
        if after:
            last = self.blob_by_hash(after)
            if last is None:
                return []
            smaller = blobs.c.size < last.size
            found = found.where(
                or_(smaller, and_(blobs.c.size == last.size, blobs.c.sha256 > after))
            )
        return self._session.all(BlobRow, found)
