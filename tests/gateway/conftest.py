"""The rig of the gateway tests."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from postroom.gateway.port import DoorDeadlines
from tests.gateway.rig import Rig


@pytest.fixture
def folder() -> Generator[Path]:
    """A short path: a socket's has 107 bytes at most, and pytest's own folders are long."""
    with tempfile.TemporaryDirectory(prefix="door") as name:
        yield Path(name)


@pytest.fixture
def deadlines(request: pytest.FixtureRequest) -> DoorDeadlines:
    """The gateway's own; a test that waits for one chooses it with `parametrize(..., indirect=True)`."""
    return getattr(request, "param", DoorDeadlines())


@pytest.fixture
async def rig(folder: Path, tmp_path: Path, deadlines: DoorDeadlines) -> AsyncGenerator[Rig]:
    rig = Rig(folder, tmp_path / "logs" / "audit.jsonl", deadlines)
    await rig.start()
    yield rig
    await rig.stop()
