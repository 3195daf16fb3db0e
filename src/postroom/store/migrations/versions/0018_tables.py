"""The tables with which migrations begin.

The first migration after this one writes these tables out here, as they were before it (a test says so): a snapshot of
this revision is then read by them.
"""

from __future__ import annotations

from alembic import op

from postroom.store.schema import metadata

revision = "0018"
down_revision = None


def upgrade() -> None:
    """Make the tables in an empty file."""
    metadata.create_all(op.get_bind())
