"""The databases that the tests of pushes run on: those of the store's tests."""

from tests.store.conftest import place, postgres_tables

__all__ = ["place", "postgres_tables"]
