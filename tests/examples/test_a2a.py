"""The two examples of the binding, each in a process of its own, over a plain nats-server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from library.servers import open_server
from tests.examples.program import EXAMPLES

pytestmark = pytest.mark.anyio


async def test_the_client_hears_the_echo_of_the_server(tmp_path: Path):
    async with open_server(tmp_path) as url, asyncio.timeout(30):
        pipe = asyncio.subprocess.PIPE
        server = await asyncio.create_subprocess_exec(
            sys.executable, EXAMPLES / "a2a_server.py", url, stdout=pipe
        )
        try:
            assert server.stdout is not None
            assert await server.stdout.readline() == b"serving a2a.agent.echo.rpc\n"
            client = await asyncio.create_subprocess_exec(
                sys.executable, EXAMPLES / "a2a_client.py", url, "good morning", stdout=pipe
            )
            said, _ = await client.communicate()
        finally:
            server.kill()
            await server.wait()

    assert (client.returncode, said) == (0, b"echo: good morning\n")
