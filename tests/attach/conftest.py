"""A room for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.control.taskroom import TaskRoom, task_room


@pytest.fixture(scope="package")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room
