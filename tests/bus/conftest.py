"""Fixtures: the contract suite runs over both implementations of the bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bus.contract import NatsPair, Pair, memory_pair, nats_pair
from tests.rig import Rig, running_bus


@pytest.fixture(params=["memory", "nats"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """The control plane and two agents, over each implementation."""
    made = memory_pair() if request.param == "memory" else nats_pair(tmp_path)
    async with made as each:
        yield each


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsPair]:
    """The control plane and two agents, over NATS alone."""
    async with nats_pair(tmp_path) as each:
        yield each


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[Rig]:
    """A server whose streams are on disk, for tests that restart it."""
    async with running_bus(tmp_path, memory=False) as rig:
        yield rig
