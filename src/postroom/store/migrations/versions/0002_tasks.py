"""Tables of A2A tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "a2a_tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("requested_seq", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Text(), nullable=False),
        sa.Column("skill", sa.Text(), nullable=False),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("released", sa.Boolean(), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_a2a_tasks")),
        sa.UniqueConstraint("requested_seq", name=op.f("uq_a2a_tasks_requested_seq")),
    )
    op.create_index("ix_a2a_tasks_worker", "a2a_tasks", ["worker", "requested_seq"])
    op.create_index("ix_a2a_tasks_requester", "a2a_tasks", ["requester", "requested_seq"])
    op.create_index(
        "ix_a2a_tasks_open",
        "a2a_tasks",
        ["worker", "requested_seq"],
        sqlite_where=sa.text("final = 0"),
    )
    op.create_index(
        "ix_a2a_tasks_untaken",
        "a2a_tasks",
        ["requested_seq"],
        sqlite_where=sa.text("final = 0 AND seq = 0"),
    )
    op.create_index(
        "ix_a2a_tasks_state",
        "a2a_tasks",
        ["state", "requested_seq"],
        sqlite_where=sa.text("final = 0"),
    )
    op.create_table(
        "a2a_task_events",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_a2a_task_events")),
    )
    op.create_index("ix_a2a_task_events_task", "a2a_task_events", ["task", "seq"])
