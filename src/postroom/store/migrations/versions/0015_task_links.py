"""A task has the door of its request and the task that it asks for again; a message the task it was sent in."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Change the projection."""
    if not holds("messages"):
        return
    for table, name in (("a2a_tasks", "door"), ("a2a_tasks", "retry_of"), ("messages", "task")):
        op.add_column(
            table, sa.Column(name, sa.Text(), server_default=sa.text("''"), nullable=False)
        )
    op.create_index("ix_a2a_tasks_retry_of", "a2a_tasks", ["retry_of"], **_named("retry_of"))
    op.create_index("ix_messages_task", "messages", ["task", "seq"], **_named("task"))


def _named(column: str) -> dict[str, Any]:
    where = sa.text(f"{column} != ''")
    return {"sqlite_where": where, "postgresql_where": where}
