"""Runs the migrations on the connection that alembic gets from us, in batch mode (SQLite cannot alter much)."""

from __future__ import annotations

from alembic import context

from postroom.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    # The caller's transaction holds all migrations, so a failed one leaves the database as it was.
    transactional_ddl=True,
)
context.run_migrations()
