"""Keys have scopes, agents of every kind have cards, messages a subject, and announcements are folded."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0011"
down_revision = "0010"

THREADS: dict[str, Any] = {
    "sqlite_where": sa.text("context_id != ''"),
    "postgresql_where": sa.text("context_id != ''"),
}


def upgrade() -> None:
    """Change identity, then the projection; each is there or not."""
    if holds("agents"):
        _identity()
    if holds("messages"):
        _projection()


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), server_default=sa.text("''"), nullable=False)


def _identity() -> None:
    op.add_column("agents", sa.Column("seen_at", sa.Float()))
    for name in ("name", "scopes"):
        op.add_column("api_keys", _text(name))
    for name in ("expires_at", "used_at"):
        op.add_column("api_keys", sa.Column(name, sa.Float()))
    op.add_column("api_keys", _text("made_by"))
    op.create_index("ix_api_keys_uid", "api_keys", ["uid"])
    op.create_table(
        "agent_cards",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["uid"], ["agents.uid"], name="fk_agent_cards_uid"),
        sa.PrimaryKeyConstraint("uid", name="pk_agent_cards"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.add_column("agent_cards", sa.Column("org", sa.Text(), nullable=False))
        op.create_index("ix_agent_cards_org", "agent_cards", ["org"])


def _projection() -> None:
    op.add_column("messages", _text("subject"))
    op.create_index("ix_messages_context_id", "messages", ["context_id", "seq"], **THREADS)
    op.create_table(
        "announcements",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_announcements"),
        sa.UniqueConstraint("sender", "id", name="uq_announcements_sender_id"),
    )
    op.create_index("ix_announcements_sender", "announcements", ["sender", "seq"])
