"""A gateway before a real nats-server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.gateway.nats.rig import House, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    async with open_house(tmp_path) as house:
        yield house
