from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.sandbox.opensandbox.remote import Remote
from postroom.sandbox.port import SandboxSpec
from postroom.sandbox.select import select
from tests.sandbox.opensandbox.double import Double, serving

KEY = "k-3f7c1a"


async def until(condition: Callable[[], bool]) -> None:
    """Ask again until it is true; these are other processes, whose events are not seen."""
    async with asyncio.timeout(30):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


class Bench:
    """A server, a stand-in for the gateway, and folders of a worker."""

    def __init__(self, folder: Path, double: Double, remote: Remote) -> None:
        self.folder = folder
        self.double = double
        self.remote = remote

    def draft(self, **more: object) -> SandboxSpec:
        spec = SandboxSpec(
            argv=(),
            env={},
            workdir="/",
            workspace=self.folder / "workspace",
            state=self.folder / "state",
            gateway_socket=self.folder / "gateway.sock",
            stderr_log=self.folder / "log",
        )
        return replace(spec, **more)

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    found = await _bubblewrap()
    if not found:
        pytest.skip("the double needs bubblewrap for its containers, and it does not work here")
    with tempfile.TemporaryDirectory(prefix="osb-") as name:
        folder = Path(name).resolve()
        for inner in ("workspace", "state"):
            (folder / inner).mkdir()
        gateway = await asyncio.start_server(_close, "127.0.0.1", 0)
        local = await asyncio.start_unix_server(_close, folder / "gateway.sock")
        port = gateway.sockets[0].getsockname()[1]
        double = Double(KEY, ("127.0.0.1", port))
        async with serving(double) as url:
            remote = Remote(
                url=url,
                key=KEY,
                image="python:3.13",
                python=sys.executable,
                gateway=f"localhost:{port}",
                gateway_ca="",
                room="r" * 32,
                run="now",
                poll=0.05,
            )
            yield Bench(folder, double, remote)
        gateway.close()
        local.close()


async def _bubblewrap() -> bool:
    from postroom.errors import SandboxUnavailable

    try:
        await select("bubblewrap")
    except SandboxUnavailable:
        return False
    return True


def _close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
