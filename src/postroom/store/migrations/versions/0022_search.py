"""Search, threads, and what each reader has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import sqlalchemy as sa
from alembic import op

from postroom.store import search
from postroom.store.migrate import holds
from postroom.store.session import Session
from postroom.store.sqlite import ONE_FILE
from postroom.store.threads import ThreadStore

if TYPE_CHECKING:
    from postroom.store.session import Driver

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Index what was said, note the threads, and make room for marks; 100,000 messages take a few seconds."""
    if holds("blobs"):
        op.create_table(
            "archived",
            sa.Column("seq", sa.Integer, nullable=False, autoincrement=False),
            sa.Column("at", sa.Float, nullable=False),
            sa.PrimaryKeyConstraint("seq", name="pk_archived"),
        )
        op.create_table(
            "feed_marks",
            sa.Column("reader", sa.Text, nullable=False),
            sa.Column("project", sa.Text, nullable=False),
            sa.Column("seq", sa.Integer, nullable=False),
            sa.PrimaryKeyConstraint("reader", "project", name="pk_feed_marks"),
        )
    if not holds("messages"):
        return
    op.add_column(
        "messages", sa.Column("archived", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.create_index("ix_messages_inbox", "messages", ["recipient", "archived", "seq"])
    op.create_index(
        "ix_messages_open_thread",
        "messages",
        ["context_id", "recipient", "final", "state"],
        sqlite_where=sa.text("final = 0 AND context_id != ''"),
        postgresql_where=sa.text("final = false AND context_id != ''"),
    )
    op.create_table(
        "threads",
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("thread", sa.Text, nullable=False),
        sa.Column("first", sa.Integer, nullable=False),
        sa.Column("last", sa.Integer, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("others", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("uid", "thread", name="pk_threads"),
    )
    op.create_index("ix_threads_last", "threads", ["uid", "last"])
    session = _session()
    search.make(session)
    ThreadStore(session).note_all()


def _session() -> Session:
    connection = op.get_bind()
    driver = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return Session(ONE_FILE, cast("Driver", driver))
    import psycopg

    from postroom.store.postgres.connection import DIALECT

    return Session(DIALECT, cast("Driver", psycopg.RawCursor(cast("psycopg.Connection", driver))))
