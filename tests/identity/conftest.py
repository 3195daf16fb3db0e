from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.identity.trust import Trust
from tests.identity.stage import ALICE, LOBBY, Peer, Stage, make_streams, staged


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust.load_or_create(tmp_path / "keys")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as made:
        yield made


@pytest.fixture
async def core(stage: Stage) -> Peer:
    peer = await stage.core()
    await make_streams(peer)
    return peer


@pytest.fixture
async def alice(stage: Stage, core: Peer) -> Peer:
    """An agent that is a member of the lobby."""
    return await stage.agent(ALICE, LOBBY)
