"""A room of their own: projects stay when their agents leave, and these tests look at the whole list."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.control.taskroom import TaskRoom, task_room


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room
