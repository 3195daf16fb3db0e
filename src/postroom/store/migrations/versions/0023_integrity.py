"""What proves that a message is as it was stored."""

from __future__ import annotations

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Change nothing yet."""
