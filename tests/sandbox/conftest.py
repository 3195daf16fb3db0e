from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.sandbox.rig import Rig


@pytest.fixture
async def rig() -> AsyncGenerator[Rig]:
    # Not tmp_path: the name of a Unix socket has room for 107 bytes only.
    with tempfile.TemporaryDirectory(prefix="rig-") as folder:
        rig = Rig(Path(folder).resolve())
        server = await asyncio.start_unix_server(rig.listen, rig.gateway)
        yield rig
        server.close()
