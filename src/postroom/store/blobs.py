"""Blobs and their readers, as rows. The contents are files (`blobs.folder`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import partial

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    exists,
    false,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from postroom.store.rows import all_of, first_of
from postroom.store.schema import agents, blob_readers, blobs

EVERYBODY = ""
"""Reader of the operator's uploads: every agent that knows the hash."""

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


_COLUMNS = [blobs.c[field.name] for field in fields(BlobRow)]


def _may_read(uid: str) -> ColumnElement[bool]:
    """Whether `uid` may read the blob of the row, as one of its readers or as the operator."""
    let = exists().where(
        blob_readers.c.sha256 == blobs.c.sha256, blob_readers.c.uid.in_((uid, EVERYBODY))
    )
    return or_(let, exists().where(agents.c.uid == uid, agents.c.kind == "human"))


def store_blob(connection: Connection, row: BlobRow, reader: str) -> BlobRow:
    """Store a blob and its reader; returns its row, which may be older."""
    new = insert(blobs).values({field.name: getattr(row, field.name) for field in fields(BlobRow)})
    again = new.on_conflict_do_update(
        index_elements=["sha256"], set_={"touched_at": row.touched_at, "size": row.size}
    )
    connection.execute(again)
    let = insert(blob_readers).values(sha256=row.sha256, uid=reader)
    connection.execute(let.on_conflict_do_nothing())
    return blob_by_hash(connection, row.sha256) or row


def touch_readable(connection: Connection, sha256: str, uid: str, now: float) -> BlobRow | None:
    """The blob, if `uid` may read it; this counts as another upload of it."""
    everything = uid == EVERYBODY
    row = (blob_by_hash if everything else partial(readable, uid=uid))(connection, sha256)
    return None if row is None else store_blob(connection, replace(row, touched_at=now), uid)


def blob_by_hash(connection: Connection, sha256: str) -> BlobRow | None:
    """The blob with that hash."""
    return first_of(connection, BlobRow, select(*_COLUMNS).where(blobs.c.sha256 == sha256))


def readable(connection: Connection, sha256: str, uid: str) -> BlobRow | None:
    """The blob with that hash, if `uid` may read it."""
    found = select(*_COLUMNS).where(blobs.c.sha256 == sha256, _may_read(uid))
    return first_of(connection, BlobRow, found)


def pass_on(connection: Connection, hashes: Collection[str], sender: str, reader: str) -> None:
    """Let `reader` read the blobs that a message or a task of `sender` names, as far as `sender` may read them."""
    if not hashes:
        return
    passed = and_(blobs.c.sha256.in_(hashes), _may_read(sender))
    rows = select(blobs.c.sha256, literal(reader)).where(passed)
    let = insert(blob_readers).from_select(["sha256", "uid"], rows)
    connection.execute(let.on_conflict_do_nothing())
    connection.execute(update(blobs).where(passed).values(named=True))


def sizes(connection: Connection, hashes: Collection[str], uid: str) -> dict[str, int]:
    """The sizes in bytes of those blobs that `uid` may read."""
    if not hashes:
        return {}
    found = select(blobs.c.sha256, blobs.c.size).where(blobs.c.sha256.in_(hashes), _may_read(uid))
    return {row.sha256: row.size for row in connection.execute(found)}


def all_sizes(connection: Connection) -> dict[str, int]:
    """Bytes of every blob, by hash."""
    return {
        row.sha256: row.size for row in connection.execute(select(blobs.c.sha256, blobs.c.size))
    }


def unnamed_before(connection: Connection, before: float) -> list[BlobRow]:
    """At most `PAGE` blobs that no message and no task has named and nobody has uploaded since `before`."""
    old = and_(blobs.c.named == false(), blobs.c.touched_at < before)
    found = select(*_COLUMNS).where(old).order_by(blobs.c.touched_at).limit(PAGE)
    return all_of(connection, BlobRow, found)


def forget_unnamed(connection: Connection, sha256: str, before: float) -> bool:
    """Forget one of `unnamed_before`; False if the blob is no longer one of them."""
    old = and_(blobs.c.sha256 == sha256, blobs.c.named == false(), blobs.c.touched_at < before)
    return connection.execute(delete(blobs).where(old)).rowcount == 1


def forget(connection: Connection, sha256: str) -> bool:
    """Forget a blob and its readers; False if it does not exist."""
    return connection.execute(delete(blobs).where(blobs.c.sha256 == sha256)).rowcount == 1


def largest(connection: Connection, limit: int) -> list[BlobRow]:
    """Blobs, the largest first."""
    found = select(*_COLUMNS).order_by(blobs.c.size.desc(), blobs.c.sha256).limit(limit)
    return all_of(connection, BlobRow, found)
