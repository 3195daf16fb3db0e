"""Where the changes of tasks are pushed, and how far each push has come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0016"
down_revision = "0015"

INDEXES = (
    ("ix_push_configs_task", "push_configs", ["task", "owner", "id"], None),
    ("ix_push_configs_open", "push_configs", ["key"], "final = 0"),
    ("ix_push_configs_owner", "push_configs", ["owner"], "final = 0"),
    ("ix_pushes_about", "pushes", ["about", "seq"], None),
    ("ix_pushes_pending", "pushes", ["hook", "seq"], "state = 'pending'"),
)


def upgrade() -> None:
    """Add the tables beside the blobs."""
    if not holds("blobs"):
        return
    whole = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
    names = ("id", "task", "owner", "api_key", "url", "token", "scheme", "credentials", "version")
    op.create_table(
        "push_configs",
        sa.Column("key", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in names),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("seq", whole, nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_push_configs"),
    )
    op.create_table(
        "pushes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hook", sa.Text(), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("seq", whole, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", whole, nullable=False),
        sa.Column("next_at", sa.Float(), nullable=True),
        sa.Column("at", sa.Float(), nullable=True),
        sa.Column("status", whole, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pushes"),
        sa.UniqueConstraint("hook", "seq", name="uq_pushes_hook_seq"),
    )
    for name, table, columns, where in INDEXES:
        op.create_index(
            name,
            table,
            columns,
            sqlite_where=None if where is None else sa.text(where),
            postgresql_where=None if where is None else sa.text(where.replace("= 0", "= false")),
        )
