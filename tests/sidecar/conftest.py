"""Fixtures of the sidecar's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rig import Rig, running_bus
from tests.sidecar.worker_rig import WorkerRig, worker_rig_on


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """A bus for all tests of a module; each has agents of its own on it."""
    async with running_bus(tmp_path_factory.mktemp("bus")) as found:
        yield found


@pytest.fixture
async def home(rig: Rig, tmp_path: Path) -> AsyncIterator[WorkerRig]:
    async with worker_rig_on(rig, tmp_path) as found:
        yield found
