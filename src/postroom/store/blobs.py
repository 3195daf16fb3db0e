"""Blobs and who may read them, as rows. The contents are files (`blobs.folder`)."""

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
"""Reader of what the operator has uploaded: every agent that knows the hash."""

PAGE = 256
"""Blobs that one question about old ones returns at most."""


@dataclass(frozen=True, slots=True)
class BlobRow:
    """Content that is there.

    Attributes:
        sha256: of it, 64 hex digits.
        size: in bytes.
        media_type: what its first uploader called it; for the operator alone, since it would say that somebody had it.
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
    """Whether `uid` may read the blob of the row: it was let, or it is the operator."""
    let = exists().where(
        blob_readers.c.sha256 == blobs.c.sha256, blob_readers.c.uid.in_((uid, EVERYBODY))
    )
    return or_(let, exists().where(agents.c.uid == uid, agents.c.kind == "human"))


def store_blob(connection: Connection, row: BlobRow, reader: str) -> BlobRow:
    """The blob is there, and `reader` may read it; returns its row, which may be older."""
    new = insert(blobs).values({field.name: getattr(row, field.name) for field in fields(BlobRow)})
    again = new.on_conflict_do_update(
        index_elements=["sha256"], set_={"touched_at": row.touched_at, "size": row.size}
    )
    connection.execute(again)
    let = insert(blob_readers).values(sha256=row.sha256, uid=reader)
    connection.execute(let.on_conflict_do_nothing())
    return blob_by_hash(connection, row.sha256) or row


def touch_readable(connection: Connection, sha256: str, uid: str, now: float) -> BlobRow | None:
    """The blob, if `uid` may read it: as if it had uploaded the blob again."""
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
    """A message or a task of `sender`'s names these blobs: those that it may read, `reader` may, too."""
    if not hashes:
        return
    passed = and_(blobs.c.sha256.in_(hashes), _may_read(sender))
    rows = select(blobs.c.sha256, literal(reader)).where(passed)
    let = insert(blob_readers).from_select(["sha256", "uid"], rows)
    connection.execute(let.on_conflict_do_nothing())
    connection.execute(update(blobs).where(passed).values(named=True))


def sizes(connection: Connection, hashes: Collection[str], uid: str) -> dict[str, int]:
    """Bytes of those of the blobs that `uid` may read."""
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
    """Blobs that no message and no task has named and nobody has uploaded since `before`; at most `PAGE`."""
    old = and_(blobs.c.named == false(), blobs.c.touched_at < before)
    found = select(*_COLUMNS).where(old).order_by(blobs.c.touched_at).limit(PAGE)
    return all_of(connection, BlobRow, found)


def forget_unnamed(connection: Connection, sha256: str, before: float) -> bool:
    """Forget one of `unnamed_before`; False if it is none any more."""
    old = and_(blobs.c.sha256 == sha256, blobs.c.named == false(), blobs.c.touched_at < before)
    return connection.execute(delete(blobs).where(old)).rowcount == 1


def forget(connection: Connection, sha256: str) -> bool:
    """Forget a blob and its readers; False if there is none."""
    return connection.execute(delete(blobs).where(blobs.c.sha256 == sha256)).rowcount == 1


def largest(connection: Connection, limit: int) -> list[BlobRow]:
    """Blobs, the largest first."""
    found = select(*_COLUMNS).order_by(blobs.c.size.desc(), blobs.c.sha256).limit(limit)
    return all_of(connection, BlobRow, found)
