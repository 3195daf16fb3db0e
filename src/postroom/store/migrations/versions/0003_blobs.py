"""Tables of blobs and their readers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("touched_at", sa.Float(), nullable=False),
        sa.Column("named", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blobs")),
    )
    op.create_index("ix_blobs_unnamed", "blobs", ["touched_at"], sqlite_where=sa.text("named = 0"))
    op.create_table(
        "blob_readers",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["sha256"],
            ["blobs.sha256"],
            name=op.f("fk_blob_readers_sha256_blobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sha256", "uid", name=op.f("pk_blob_readers")),
    )
