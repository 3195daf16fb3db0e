"""What readers have put away, and how far they have read the feeds of projects. Its origin is here: no log says it."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import bindparam, delete, false, func, select, true, update

from postroom.protocol.limits import MAX_UNREAD
from postroom.store.messages import UNREAD, page
from postroom.store.schema import archived, feed_marks, messages, posts
from postroom.store.session import Session, among, insert_new, prepared, upsert

_PUT = insert_new(archived)
_TAKE = prepared(delete(archived).where(among(archived.c.seq, "keys")))
_MARK = prepared(update(messages).where(among(messages.c.seq, "keys")))
_OWN = prepared(
    select(messages.c.seq).where(
        among(messages.c.seq, "keys"), messages.c.recipient == bindparam("reader")
    )
)
_READ = prepared(
    select(messages.c.seq)
    .where(messages.c.recipient == bindparam("reader"), messages.c.archived == false(), ~UNREAD)
    .order_by(messages.c.seq)
    .limit(bindparam("most"))
)
_MARKS = prepared(select(archived.c.seq))
_MARKED = prepared(select(messages.c.seq).where(messages.c.archived == true()))
_SET_FEED = upsert(feed_marks, ["reader", "project"], ["seq"])
_FEEDS = prepared(
    select(feed_marks.c.project, feed_marks.c.seq).where(feed_marks.c.reader == bindparam("of"))
)
_FEED = prepared(
    select(feed_marks.c.seq).where(
        feed_marks.c.reader == bindparam("of"), feed_marks.c.project == bindparam("named")
    )
)
_NEW_POSTS = (
    select(posts.c.seq)
    .where(posts.c.project == bindparam("named"), posts.c.seq > bindparam("past"))
    .where(posts.c.sender != bindparam("of"))
    .limit(MAX_UNREAD)
    .subquery()
)
_COUNT_NEW = prepared(select(func.count()).select_from(_NEW_POSTS))
_LAST_POST = prepared(select(func.max(posts.c.seq)).where(posts.c.project == bindparam("named")))


class ReadingStore:
    """The marks of all readers."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def archive(self, reader: str, seqs: Collection[int], at: float, *, put: bool = True) -> int:
        """Put away messages to `reader`, or take them out again; returns how many there are of them."""
        own = self._session.column(_OWN, keys=seqs, reader=reader)
        for seq in own if put else ():
            self._session.run(_PUT, {"seq": seq, "at": at})
        if not put:
            self._session.run(_TAKE, {"keys": own})
        self._session.run(_MARK, {"keys": own, "archived": put})
        return len(own)

    def read(self, reader: str, limit: int) -> list[int]:
        """The first messages to `reader` that it has read, or that ended otherwise, and has not put away."""
        return self._session.column(_READ, reader=reader, most=page(limit))

    def marked_again(self) -> None:
        """Let all messages say what is put away, after older rows were loaded or a crash came between."""
        marks = set(self._session.column(_MARKS))
        marked = set(self._session.column(_MARKED))
        for keys, put in ((marks - marked, True), (marked - marks, False)):
            if keys:
                self._session.run(_MARK, {"keys": sorted(keys), "archived": put})

    def forget(self, seqs: Collection[int]) -> None:
        """Messages were deleted."""
        self._session.run(_TAKE, {"keys": seqs})

    def read_feed(self, reader: str, project: str, seq: int) -> int:
        """Note that `reader` has read the posts of a project up to `seq`, at most the last one; returns the mark, which
        never goes back.
        """
        last = self._session.scalar(_LAST_POST, named=project) or 0
        known = self._session.scalar(_FEED, of=reader, named=project) or 0
        mark = max(known, min(seq, last))
        if mark > known:
            self._session.run(_SET_FEED, {"reader": reader, "project": project, "seq": mark})
        return mark

    def feeds(self, reader: str) -> dict[str, int]:
        """Each project to the sequence up to which `reader` has read it."""
        return dict(self._session.rows(_FEEDS, of=reader))

    def new_posts(self, reader: str, project: str, after: int) -> int:
        """The number of posts of others past a sequence, at most `MAX_UNREAD`."""
        return self._session.scalar(_COUNT_NEW, of=reader, named=project, past=after)
