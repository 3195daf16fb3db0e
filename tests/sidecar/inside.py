"""A running worker as a program in its sandbox sees it: the local API, and `postroom-agent` over it."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest import mock

from postroom.agentcli.main import main
from tests.sidecar.worker_rig import WorkerRig

WAITS = """
for line in lines():
    if line["type"] == "hello":
        open("api", "w").write(line["api"])
        say(type="post", text="up")
"""


@dataclass
class Shell:
    """Where `postroom-agent` is typed; `api` is the address of the local API."""

    api: str

    async def run(self, *words: str, stdin: bytes | str = b"") -> tuple[int, str, str]:
        """Exit code, stdout without its last newline, and stderr of the command. It runs here, as a function."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        return await asyncio.to_thread(self._run, words, given)

    def _run(self, words: tuple[str, ...], given: bytes) -> tuple[int, str, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        source = io.TextIOWrapper(io.BytesIO(given), "utf-8")
        env = mock.patch.dict(os.environ, self._env())
        with (
            env,
            mock.patch.object(sys, "stdin", source),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                code = main(words)
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
        out.flush()
        printed = out.buffer.getvalue().decode()
        return code, printed.removesuffix("\n"), err.getvalue()

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        """The command as a process of its own."""
        paths = os.pathsep.join(path for path in sys.path if path)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postroom.agentcli.main", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._env(), "PYTHONPATH": paths},
        )

    def _env(self) -> dict[str, str]:
        # The proxy is not for the local API.
        return {"POSTROOM_API": self.api, "http_proxy": "http://127.0.0.1:9"}

    async def raw(self, request: str, body: bytes = b"") -> bytes:
        """The answer to a request as it stands; `{host}` is the right Host."""
        host = self.api.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        text = request.replace("{host}", host).replace("\n", "\r\n")
        writer.write(text.encode("latin-1") + body)
        async with asyncio.timeout(10):
            answer = await reader.read(65536)
        writer.close()
        return answer


@dataclass
class Inside(Shell):
    """The shell of a running worker."""

    home: WorkerRig


@asynccontextmanager
async def inside(home: WorkerRig, **changes: Any) -> AsyncGenerator[Inside]:
    """A worker whose agent waits."""
    async with home.sidecar(WAITS, **changes):
        await home.tap.until(home.posts)
        yield Inside((home.folder / "api").read_text(), home)
