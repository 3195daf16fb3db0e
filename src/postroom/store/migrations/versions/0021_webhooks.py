"""Webhooks, secrets of receivers that are sealed, and the receipt that a message has last got."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0021"
down_revision = "0020"


def _words(*names: str) -> list[sa.Column]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def upgrade() -> None:
    """Make the tables where the pushes are; SQL cannot seal what is there, so the next start does."""
    if holds("push_configs"):
        _add_webhooks()
    if holds("messages"):
        receipt = sa.Column("receipt", _integer(), nullable=False, server_default=sa.text("0"))
        op.add_column("messages", receipt)
        has_one = sa.text("receipt > 0")
        op.create_index(
            "ix_messages_receipt",
            "messages",
            ["receipt"],
            sqlite_where=has_one,
            postgresql_where=has_one,
        )


def _add_webhooks() -> None:
    op.add_column(
        "push_configs", sa.Column("sealed", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.create_table(
        "webhooks",
        *_words("id", "owner", "api_key", "url", "events", "secret", "former"),
        sa.Column("former_until", sa.Float),
        sa.Column("made_at", sa.Float, nullable=False),
        *_words("disabled"),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_owner", "webhooks", ["owner", "id"])
    op.create_table(
        "webhook_cursors",
        *_words("stream"),
        sa.Column("seq", _integer(), nullable=False),
        sa.PrimaryKeyConstraint("stream", name="pk_webhook_cursors"),
    )


def _integer() -> sa.types.TypeEngine:
    return sa.Integer().with_variant(sa.BigInteger(), "postgresql")
