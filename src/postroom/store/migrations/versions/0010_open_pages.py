"""A page of the unread messages of an agent, or of open tasks, reads no final ones."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0010"
down_revision = "0009"

OPEN: dict[str, Any] = {
    "sqlite_where": sa.text("final = 0"),
    "postgresql_where": sa.text("final = false"),
}


def upgrade() -> None:
    """Change the projection."""
    if not holds("messages"):
        return
    op.drop_index("ix_messages_open", table_name="messages")
    op.create_index("ix_messages_open", "messages", ["recipient", "final", "seq"], **OPEN)
    op.create_index("ix_a2a_tasks_newest_open", "a2a_tasks", ["final", "requested_seq"], **OPEN)
