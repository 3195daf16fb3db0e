"""The index of what was said: for each message and post the pieces of its text (`store.words`).

It is made from the rows of `messages` and `posts` and holds nothing that they do not, so no snapshot has it: who loads
rows indexes them (`INDEXES`). A row that is deleted takes its entry with it.

    SQLite       FTS5, of which every Python has what is used here
    PostgreSQL   `tsvector` with a GIN index, without an extension

An index says what has the rarest of some pieces fast, the newest first only where each of them is frequent. PostgreSQL
would sort all that has a frequent word, so it is asked for the newest rows first (`WINDOW`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, func, select, text

from postroom.store.schema import messages, posts
from postroom.store.session import Dialect, Prepared, Session, prepared
from postroom.store.words import Wanted, mark, pieces

WINDOW = 1024
"""Sequences that PostgreSQL reads one by one before it asks the index."""

CHUNK = 500
"""Rows that are indexed at once."""

POSTGRES = "postgresql"

PARTY, THREAD, PROJECT, REQUEST = "p", "t", "f", "r"
"""What a mark says: a sender or recipient, the thread, the project, that it requests a task."""


def of_message(row: Mapping[str, Any]) -> str:
    """What the index holds of a row of `messages`."""
    marks = [mark(PARTY, row["sender"]), mark(PARTY, row["recipient"])]
    if row["context_id"]:
        marks.append(mark(THREAD, row["context_id"]))
    if row["requests"]:
        marks.append(mark(REQUEST, ""))
    return pieces((row["text"], row["subject"]), marks)


def of_post(row: Mapping[str, Any]) -> str:
    """What the index holds of a row of `posts`."""
    return pieces((row["text"],), [mark(PROJECT, row["project"])])


_TABLES = {
    "sqlite": """
CREATE VIRTUAL TABLE {name} USING fts5(words, detail=none, columnsize=0, tokenize='ascii')
--
CREATE TRIGGER {name}_forget AFTER DELETE ON {of} BEGIN
    DELETE FROM {name} WHERE rowid = OLD.seq; END
""",
    POSTGRES: """
CREATE TABLE {name} (seq BIGINT PRIMARY KEY REFERENCES {of} ON DELETE CASCADE ON UPDATE CASCADE,
    words TSVECTOR NOT NULL)
--
CREATE INDEX ix_{name} ON {name} USING gin (words)
""",
}
_ADD = {
    "sqlite": "INSERT INTO {name} (rowid, words) VALUES (:seq, :words)",
    POSTGRES: "INSERT INTO {name} VALUES (:seq, array_to_tsvector(string_to_array(:words, ' ')))",
}
_HAVE = {
    "sqlite": "SELECT rowid FROM {name} WHERE {name} MATCH :query AND rowid >= :least"
    " AND rowid < :past ORDER BY rowid DESC LIMIT :most",
    POSTGRES: "SELECT seq FROM {name} WHERE words @@ CAST(:query AS tsquery) AND seq >= :least"
    " AND seq < :past ORDER BY seq DESC LIMIT :most",
}


def _kind(dialect: Dialect) -> str:
    return POSTGRES if dialect.name == POSTGRES else "sqlite"


class Index:
    """The index of one table.

    Args:
        of: table whose rows it has, by their `seq`.
        columns: those that it is made of.
        entry: what it holds of a row, from these columns.
    """

    def __init__(
        self, of: Table, columns: Sequence[str], entry: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self.of = of
        self._names = {"of": of.name, "name": f"{of.name.removesuffix('s')}_words"}
        self._entry = entry
        self._columns = columns
        self._add = Prepared(lambda dialect: text(_ADD[_kind(dialect)].format(**self._names)))
        self._newest = prepared(select(func.max(of.c.seq)))
        self._some = prepared(
            select(of.c.seq, *(of.c[column] for column in columns))
            .where(of.c.seq > bindparam("after"))
            .order_by(of.c.seq)
            .limit(CHUNK)
        )

    def tables(self, dialect: str) -> Iterator[str]:
        """The statements that make it, for `sqlite` or `postgresql`."""
        for statement in _TABLES[dialect].split("--"):
            yield statement.format(**self._names)

    def add(self, session: Session, row: Mapping[str, Any]) -> None:
        """Index a new row."""
        session.run(self._add, {"seq": row["seq"], "words": self._entry(row)})

    def add_all(self, session: Session, after: int = 0) -> None:
        """Index all rows past that sequence, of which it has none yet."""
        some = [()]
        while some:
            some = session.rows(self._some, after=after)
            entries = [
                {"seq": seq, "words": self._entry(dict(zip(self._columns, row, strict=True)))}
                for seq, *row in some
            ]
            session.run_many(self._add, entries)
            after = some[-1][0] if some else after

    def finds(self, columns: Sequence[Any]) -> Prepared:
        """The statement for `find`, which gives these columns of the table."""

        def build(dialect: Dialect) -> Any:
            having = _HAVE[_kind(dialect)].format(**self._names)
            found = select(*columns).where(text(f"{self.of.name}.seq IN ({having})"))
            return found.order_by(self.of.c.seq.desc())

        return Prepared(build)

    def find(
        self, session: Session, statement: Prepared, wanted: Wanted, before: int, limit: int
    ) -> Iterator[Sequence[Any]]:
        """The rows that may have all that is wanted, the newest first.

        Args:
            statement: from `finds`; its first column is `seq`.
            before: only those below this sequence; 0 for all.
            limit: how many are probably asked for.
        """
        kind, past = _kind(session.dialect), before or 2**62
        query = (" & " if kind == POSTGRES else " AND ").join(
            f"'{piece}'" if kind == POSTGRES else f'"{piece}"' for piece in wanted.pieces
        )
        steps = [0]
        if kind == POSTGRES:
            newest = session.scalar(self._newest) or 0
            steps = [max(0, min(past, newest + 1) - WINDOW), 0]
        for least in steps:
            most = limit
            while past > least:
                values = {"query": query, "least": least, "past": past, "most": most}
                rows = session.rows(statement, **values)
                yield from rows
                past = rows[-1][0] if len(rows) == most else least
                most = CHUNK


MESSAGES = Index(
    messages, ("text", "subject", "sender", "recipient", "context_id", "requests"), of_message
)
POSTS = Index(posts, ("text", "project"), of_post)
INDEXES = (MESSAGES, POSTS)


def make(session: Session) -> None:
    """Make the indexes of tables that have rows, perhaps."""
    for index in INDEXES:
        for statement in index.tables(_kind(session.dialect)):
            session.driver.execute(statement)
        index.add_all(session)
