"""Webhooks, and secrets of receivers that are encrypted."""

from __future__ import annotations

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Change nothing yet."""
