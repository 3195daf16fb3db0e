"""The library's README as a newcomer takes it: its programs run as they stand."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from library.servers import open_server

pytestmark = pytest.mark.anyio

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"```python (\w+\.py)\n(.*?)```", README, re.DOTALL))
ADDRESS = "nats://127.0.0.1:4222"
STORED = [f"stored {item} as {number}" for number, item in enumerate(("cup", "plate", "bowl"), 1)]


async def start(folder: Path, name: str, url: str) -> asyncio.subprocess.Process:
    assert PROGRAMS[name].count(ADDRESS) == 1
    (folder / name).write_text(PROGRAMS[name].replace(ADDRESS, url), encoding="utf-8")
    return await asyncio.create_subprocess_exec(
        sys.executable, folder / name, stdout=asyncio.subprocess.PIPE
    )


@pytest.mark.requirement("docs-commands-run")
async def test_the_programs_run_as_they_stand(tmp_path: Path):
    async with open_server(tmp_path / "nats") as url, asyncio.timeout(60):
        server = await start(tmp_path, "server.py", url)
        try:
            assert server.stdout is not None
            assert await server.stdout.readline() == b"serving a2a.agent.echo.rpc\n"
            client, pull = [await start(tmp_path, name, url) for name in ("client.py", "pull.py")]
            (said, _), (packed, _) = await asyncio.gather(client.communicate(), pull.communicate())
            server.terminate()
            assert await server.wait() == 0
        finally:
            with suppress(ProcessLookupError):
                server.kill()
            await server.wait()
    assert (client.returncode, said) == (0, b"echo: hi\n")
    assert pull.returncode == 0
    assert packed.decode().splitlines() == [*STORED, "packed cup", "packed plate", "packed bowl"]
