"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("org", sa.Text(), nullable=False),
        sa.Column("nick", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("skeleton", sa.Text(), nullable=False),
        sa.Column("message_secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("retired_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_agents")),
    )
    op.create_index(
        "ix_agents_nick",
        "agents",
        ["org", "nick"],
        unique=True,
        sqlite_where=sa.text("retired_at IS NULL"),
    )
    op.create_index(
        "ix_agents_skeleton",
        "agents",
        ["org", "skeleton"],
        unique=True,
        sqlite_where=sa.text("retired_at IS NULL"),
    )
    op.create_table(
        "alerts",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_alerts")),
    )
    op.create_index("ix_alerts_about", "alerts", ["about", "kind"], unique=False)
    op.create_table(
        "cursors",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("stream", name=op.f("pk_cursors")),
    )
    op.create_table(
        "deadletters",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("dropped_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deadletters")),
        sa.UniqueConstraint("origin", name=op.f("uq_deadletters_origin")),
    )
    op.create_index("ix_deadletters_message", "deadletters", ["message_id", "sender"], unique=False)
    op.create_table(
        "early_receipts",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_early_receipts")),
    )
    op.create_index(
        "ix_early_receipts_message", "early_receipts", ["sender", "message_id"], unique=False
    )
    op.create_table(
        "messages",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("context_id", sa.Text(), nullable=False),
        sa.Column("expects_reply", sa.Boolean(), nullable=False),
        sa.Column("reply_to", sa.Text(), nullable=False),
        sa.Column("requeue_of", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.Float(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_messages")),
        sa.UniqueConstraint("sender", "id", name=op.f("uq_messages_sender_id")),
    )
    op.create_index(
        "ix_messages_expiry",
        "messages",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("final = 0 AND expires_at > 0"),
    )
    op.create_index("ix_messages_id", "messages", ["id"], unique=False)
    op.create_index(
        "ix_messages_open",
        "messages",
        ["recipient", "stored_at"],
        unique=False,
        sqlite_where=sa.text("final = 0"),
    )
    op.create_index("ix_messages_pair", "messages", ["sender", "recipient", "seq"], unique=False)
    op.create_index("ix_messages_recipient", "messages", ["recipient", "seq"], unique=False)
    op.create_index(
        "ix_messages_reply_to", "messages", ["reply_to", "sender", "recipient"], unique=False
    )
    op.create_index(
        "ix_messages_requeue_of",
        "messages",
        ["requeue_of"],
        unique=False,
        sqlite_where=sa.text("requeue_of != ''"),
    )
    op.create_index(
        "ix_messages_waiting",
        "messages",
        ["stored_at"],
        unique=False,
        sqlite_where=sa.text("final = 0 AND state = 'accepted'"),
    )
    op.create_table(
        "posts",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_posts")),
        sa.UniqueConstraint("sender", "id", name=op.f("uq_posts_sender_id")),
    )
    op.create_index("ix_posts_project", "posts", ["project", "seq"], unique=False)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["uid"], ["agents.uid"], name=op.f("fk_api_keys_uid")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("sha256", name=op.f("uq_api_keys_sha256")),
    )
    op.create_table(
        "memberships",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["uid"], ["agents.uid"], name=op.f("fk_memberships_uid")),
        sa.PrimaryKeyConstraint("uid", "project", name=op.f("pk_memberships")),
    )
    op.create_table(
        "workers",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("overrides", sa.Text(), nullable=False),
        sa.Column("sandbox", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("desired", sa.Text(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["uid"], ["agents.uid"], name=op.f("fk_workers_uid")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_workers")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_workers_token_sha256")),
    )
