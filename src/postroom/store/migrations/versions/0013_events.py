"""What agents do, folded from EVENTS."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the table to a projection; it is filled when the log is read next."""
    if not holds("messages"):
        return
    whole = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
    op.create_table(
        "sdk_events",
        sa.Column("id", whole, autoincrement=False, nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("number", whole, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("tokens_in", whole, nullable=False),
        sa.Column("tokens_out", whole, nullable=False),
        sa.Column("cost", sa.Float(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("settled", whole, nullable=True),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sdk_events"),
        sa.UniqueConstraint("worker", "run", "number", name="uq_sdk_events_worker_run_number"),
    )
    for name, columns, where in (
        ("worker", ["worker", "id"], None),
        ("task", ["task", "id"], "task != ''"),
        ("request", ["request", "id"], "request != ''"),
        ("usage", ["worker", "tokens_in", "tokens_out", "cost"], "kind = 'usage'"),
        ("approvals", ["id"], "settled IS NOT NULL"),
        ("pending", ["worker", "id"], "settled = 0"),
    ):
        op.create_index(
            f"ix_sdk_events_{name}",
            "sdk_events",
            columns,
            sqlite_where=sa.text(where) if where else None,
            postgresql_where=sa.text(where) if where else None,
        )
