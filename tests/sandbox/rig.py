"""A rig for sandbox tests: host folders, a gateway that hears what the program says, and programs to run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.port import SandboxHandle, SandboxProvider, SandboxSpec

PRELUDE = """
import json, os, signal, socket, sys
gate = socket.socket(socket.AF_UNIX)
gate.connect(sys.argv[1])
def say(value):
    gate.sendall(json.dumps(value).encode() + b"\\n")
def hold():
    gate.recv(1)
"""
DEADLINE = 20.0


class Rig:
    """One sandbox's surroundings. Programs `say(value)` to it through the gateway socket, and `hold()`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.log = folder / "log"
        self.gateway = folder / "gateway.sock"
        self.workspace.mkdir()
        self._heard: asyncio.Queue[Any] = asyncio.Queue(100)

    def draft(self, **fields: Any) -> SandboxSpec:
        fields.setdefault("workspace", self.workspace)
        return SandboxSpec((), {}, "/", gateway_socket=self.gateway, stderr_log=self.log, **fields)

    def spec(self, provider: SandboxProvider, code: str, **fields: Any) -> SandboxSpec:
        paths = provider.paths(self.draft())
        argv = (*SCRIPT, "-c", PRELUDE + code, paths.gateway_socket, paths.workspace)
        return replace(self.draft(), **{"argv": argv, "workdir": paths.workspace, **fields})

    async def start(self, provider: SandboxProvider, code: str, **fields: Any) -> SandboxHandle:
        return await provider.start(self.spec(provider, code, **fields))

    async def hear(self) -> Any:
        """The next value said; fails with the program's output if none comes."""
        try:
            async with asyncio.timeout(DEADLINE):
                return await self._heard.get()
        except TimeoutError:
            pytest.fail(f"the program said nothing; it printed: {self.log.read_text()}")

    async def ask(self, provider: SandboxProvider, code: str, **fields: Any) -> Any:
        """What a program says first; it is ended then."""
        handle = await self.start(provider, code, **fields)
        try:
            return await self.hear()
        finally:
            await handle.stop(0)

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await self._heard.put(json.loads(line))
        writer.close()
