"""Tasks have cursors of their own, and a message says whether it requests a task.

From here on each migration runs once on identity and once on the projection (`store.migrate`).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Change the projection."""
    if not holds("cursors"):
        return
    op.rename_table("cursors", "cursors_before")
    op.create_table(
        "cursors",
        sa.Column("projection", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("projection", "stream", name="pk_cursors"),
    )
    op.execute(
        "INSERT INTO cursors SELECT 'mail', stream, seq FROM cursors_before WHERE stream != 'TASKS'"
    )
    op.execute(
        "INSERT INTO cursors SELECT 'tasks', stream, seq FROM cursors_before"
        " WHERE stream IN ('INBOX', 'TASKS')"
    )
    op.drop_table("cursors_before")
    op.add_column(
        "messages",
        sa.Column("requests", sa.Boolean(), nullable=False, server_default=sa.text("0")),
    )
    op.execute(
        "UPDATE messages SET requests = 1 WHERE seq IN (SELECT requested_seq FROM a2a_tasks)"
    )
