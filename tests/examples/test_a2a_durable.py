"""The two examples of the durable binding, the client first: its request waits for the server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from library.servers import open_server
from tests.examples.program import EXAMPLES

pytestmark = pytest.mark.anyio


async def test_a_client_that_is_first_hears_the_echo_of_a_server_that_comes_later(tmp_path: Path):
    async with open_server(tmp_path) as url, asyncio.timeout(50):
        pipe = asyncio.subprocess.PIPE
        client = await asyncio.create_subprocess_exec(
            sys.executable, EXAMPLES / "a2a_durable_client.py", url, "good morning", stdout=pipe
        )
        server = await asyncio.create_subprocess_exec(
            sys.executable, EXAMPLES / "a2a_durable_server.py", url, stdout=pipe
        )
        try:
            said, _ = await client.communicate()
        finally:
            server.kill()
            await server.wait()

    assert (client.returncode, said) == (0, b"echo: good morning\n")
