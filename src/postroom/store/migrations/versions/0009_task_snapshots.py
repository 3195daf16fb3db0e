"""The snapshot of a task lies beside the change that brought it; the changes since are applied to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0009"
down_revision = "0008"

FULL = 384 * 1024
"""Bytes of a full task: what follows a snapshot from before has to hold one itself."""


def upgrade() -> None:
    """Change the projection."""
    if not holds("a2a_tasks"):
        return
    for name in ("snapshot_seq", "weight", "since"):
        column = sa.Column(name, sa.Integer(), server_default=sa.text("0"), nullable=False)
        op.add_column("a2a_tasks", column)
    for name in ("answer", "snapshot"):
        column = sa.Column(name, sa.Text(), server_default=sa.text("''"), nullable=False)
        op.add_column("a2a_task_events", column)
    tasks = sa.table("a2a_tasks", sa.column("seq"), sa.column("snapshot_seq"), sa.column("weight"))
    op.execute(tasks.update().values(snapshot_seq=tasks.c.seq, weight=FULL))
