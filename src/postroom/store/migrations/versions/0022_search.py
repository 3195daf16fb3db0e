"""Search, threads, and what each reader has read."""

from __future__ import annotations

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Change nothing yet."""
