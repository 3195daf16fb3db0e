"""Terminals of people: on the sidecar's own pseudo terminal, and on execd's, through a double of it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import uvicorn

from postroom.errors import PostroomError
from postroom.protocol.terminals import FrameKind, FrameReader, end, reason_in
from postroom.sidecar.execd import ExecdAddress
from postroom.sidecar.execd_terminal import ExecdShells, ExecdTerminal
from postroom.sidecar.process import exited
from postroom.sidecar.terminal import OpenShell, Shell, Terminal, own_shell, printed
from tests.sandbox.opensandbox.execd import Execd

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("terminal-one-at-a-time")]

ENV = {"PATH": os.environ["PATH"], "OWN": "of the 'agent'", "PS1": "> "}
TOKEN = "sesame"
DEADLINE = 20.0
EXECD = Path(__file__).parents[1] / "sandbox" / "opensandbox" / "execd.py"


@asynccontextmanager
async def serving(execd: Execd) -> AsyncGenerator[int]:
    """Its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(execd.app(), log_level="warning", lifespan="off"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server._serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True


def of_execd(port: int, cwd: Path, token: str = TOKEN) -> OpenShell:
    address = ExecdAddress(port, token)
    return ExecdShells(address, ENV, str(cwd), partial(own_shell, ENV, str(cwd))).open


@pytest.fixture(params=["local", "execd"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Shell]:
    """A shell of 91 columns and 17 rows: the same promises for each of them."""
    if request.param == "local":
        shell = await own_shell(ENV, str(tmp_path), (91, 17))
        yield shell
        await shell.close()
        return
    execd = Execd(TOKEN)
    async with serving(execd) as port:
        shell = await of_execd(port, tmp_path)((91, 17))
        assert isinstance(shell, ExecdTerminal)
        yield shell
        await shell.close()
        assert not execd.terminals


async def until(shell: Shell, wanted: str) -> str:
    """What it prints up to `wanted`."""
    seen = b""
    async with asyncio.timeout(DEADLINE):
        while wanted.encode() not in seen:
            piece = await shell.read()
            assert piece, f"{wanted!r} is not in {seen!r}"
            seen += piece
    return seen.decode()


async def last(shell: Shell) -> bytes:
    """The last frame that the control plane gets of it."""
    frame = b""
    async with asyncio.timeout(DEADLINE):
        async for frame in printed(shell):  # noqa: B007 (the last one)
            pass
    return frame


async def test_size_folder_environment_and_exit_status_are_those_that_were_asked_for(
    opened: Shell, tmp_path: Path
) -> None:
    await opened.write(b'echo "<$OWN> <$TERM>"; pwd; stty size; echo d""one\n')
    seen = await until(opened, "done")
    assert "<of the 'agent'> <xterm-256color>" in seen
    assert str(tmp_path) in seen
    assert "17 91" in seen
    await opened.resize((50, 33))
    await opened.write(b"stty size\n")
    await until(opened, "33 50")
    await opened.write(b"exit 7\n")
    assert await last(opened) == end(7)


async def test_much_output_comes_whole(opened: Shell) -> None:
    await opened.write(b'stty -echo; seq 1 30000; echo d""one\n')
    seen = await until(opened, "done")
    numbers = [line.strip() for line in seen.splitlines() if line.strip().isdigit()]
    assert numbers == [str(number) for number in range(1, 30001)]


async def test_a_hang_up_ends_the_shell_and_what_runs_in_it(opened: Shell) -> None:
    # The job says its own id: it is in the foreground by then.
    await opened.write(b"""echo "<$$>"; sh -c 'echo "<$$>"; exec sleep 600'\n""")
    pids: list[int] = []
    seen = ""
    while len(pids) < 2:
        seen += await until(opened, ">\r\n")
        pids = [int(found) for found in re.findall(r"<(\d+)>\r\n", seen)]
    gone = [asyncio.ensure_future(exited(pid)) for pid in pids]
    await asyncio.sleep(0)  # each has its process in hand now
    assert not any(one.done() for one in gone)
    await opened.close()
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*gone)
    await opened.close()


async def test_an_execd_without_terminals_leaves_them_to_the_sidecar(tmp_path: Path) -> None:
    async with serving(Execd(TOKEN, terminals=False)) as port:
        shell = await of_execd(port, tmp_path)((80, 24))
        assert isinstance(shell, Terminal)
        await shell.write(b"exit 3\n")
        assert await last(shell) == end(3)
        await shell.close()


async def test_an_execd_that_knows_no_command_opens_its_own_shell(tmp_path: Path) -> None:
    async with serving(Execd(TOKEN, argv=False)) as port:
        shell = await of_execd(port, tmp_path)((91, 17))
        await shell.write(b'pwd; stty size; echo d""one\n')
        seen = await until(shell, "done")
        assert str(tmp_path) in seen
        assert "17 91" in seen
        await shell.close()


async def test_an_execd_that_refuses_is_told_and_nothing_is_opened_instead(tmp_path: Path) -> None:
    async with serving(Execd("another")) as port:
        with pytest.raises(PostroomError, match="401"):
            await of_execd(port, tmp_path)((80, 24))


async def test_an_execd_that_is_killed_ends_the_terminal_with_a_reason(tmp_path: Path) -> None:
    script = (
        f"import asyncio, socket, sys; sys.path.insert(0, {str(EXECD.parent)!r})\n"
        "import uvicorn; from execd import Execd\n"
        "listener = socket.create_server(('127.0.0.1', 0)); print(listener.getsockname()[1], flush=True)\n"
        "config = uvicorn.Config(Execd('sesame').app(), log_level='warning', lifespan='off')\n"
        "asyncio.run(uvicorn.Server(config).serve([listener]))\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            port = int(await process.stdout.readline())
        shell = await of_execd(port, tmp_path)((80, 24))
        await shell.write(b'echo rea""dy\n')
        await until(shell, "ready")
    finally:
        process.kill()
        await process.wait()
    ((kind, reason),) = FrameReader().feed(await last(shell))
    assert kind is FrameKind.FAILED
    assert "execd" in reason_in(reason)
    await shell.write(b"into the void")
    await shell.close()
