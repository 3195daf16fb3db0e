"""One post room for the tests of a module: none of their cases may change anything in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.attack.site import Target, open_target


@pytest.fixture(scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Target]:
    async with open_target(tmp_path_factory.mktemp("attack")) as target:
        yield target
