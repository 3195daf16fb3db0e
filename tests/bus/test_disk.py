"""A full disk is refused before it hurts, and healed when there is space again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from postroom.bus.disk import DiskWatch, check_space
from postroom.errors import StateUnwritable
from postroom.identity.trust import Trust
from tests.bus.embedding import PATIENCE, make_config, running

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("disk-full-refused")
def test_too_little_space_is_a_typed_refusal_with_its_remedy(tmp_path: Path):
    check_space(tmp_path, 0)
    with pytest.raises(StateUnwritable, match="full") as caught:
        check_space(tmp_path, 2**80)
    assert "free space" in caught.value.remedy


@pytest.mark.requirement("disk-full-refused")
async def test_a_server_that_stopped_writing_ends_only_when_there_is_space_again(tmp_path: Path):
    full = True

    def space(_folder: Path) -> None:
        if full:
            raise StateUnwritable("full")

    config = make_config(Trust.load_or_create(tmp_path / "keys"), tmp_path)
    async with running(config) as server:
        watch = DiskWatch(config, lambda: server, space)
        assert not await watch.step()
        with config.log.open("a") as file:
            file.write("[ERR] Filestore [INBOX] Critical write error: no space left on device\n")
            file.write("[ERR] JetStream stream 'A > INBOX' critical write error: no space left\n")

        assert not await watch.step()
        assert server.running

        full = False
        assert await watch.step()
        await asyncio.wait_for(server.wait(), PATIENCE)
        assert not server.running
