"""Whom agents let in, who asks for it, and how agents come into an organisation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0020"
down_revision = "0019"


def _words(*names: str) -> list[sa.Column]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def upgrade() -> None:
    """Make their tables, and what is known of an agent, where the agents are."""
    if not holds("agents"):
        return
    empty = sa.text("''")
    for name in ("owner", "owner_email", "joined"):
        op.add_column("agents", sa.Column(name, sa.Text, nullable=False, server_default=empty))
    op.add_column(
        "agents",
        sa.Column("grants_only", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "grants",
        *_words("id", "granter", "grantee", "scopes", "made_by"),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
        sa.Column("called", sa.Text, nullable=False, server_default=empty),
        *_words("org"),
        sa.PrimaryKeyConstraint("id", name="pk_grants"),
        sa.ForeignKeyConstraint(["granter"], ["agents.uid"], name="fk_grants_granter"),
    )
    op.create_index("ix_grants_granter", "grants", ["granter", "grantee"], unique=True)
    op.create_index("ix_grants_grantee", "grants", ["grantee", "granter"])
    op.create_table(
        "grant_requests",
        *_words("id", "granter", "grantee", "scopes", "reason"),
        sa.Column("asked_at", sa.Float, nullable=False),
        *_words("state"),
        sa.Column("answered_by", sa.Text, nullable=False, server_default=empty),
        sa.Column("answered_at", sa.Float),
        *_words("org"),
        sa.PrimaryKeyConstraint("id", name="pk_grant_requests"),
        sa.ForeignKeyConstraint(["granter"], ["agents.uid"], name="fk_grant_requests_granter"),
    )
    op.create_index(
        "ix_grant_requests_granter", "grant_requests", ["granter", "grantee"], unique=True
    )
    op.create_table(
        "invites",
        *_words("id", "sha256", "kind", "scopes"),
        sa.Column("uses", sa.Integer, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
        *_words("made_by"),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        *_words("org"),
        sa.PrimaryKeyConstraint("id", name="pk_invites"),
    )
    op.create_table(
        "admissions",
        *_words("org", "registration"),
        sa.Column("grants_only", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("org", name="pk_admissions"),
    )
