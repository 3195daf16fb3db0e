"""Commands and files of the workspace: over real processes and files, and through a double of execd."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn

from postroom.errors import (
    BusDisconnected,
    InvalidInput,
    NotFound,
    PeerError,
    PostroomError,
    ProtocolViolation,
)
from postroom.protocol.verbs import RunCommand
from postroom.sidecar import execd as module
from postroom.sidecar.execd import ExecdAddress, ExecdWorkstation
from postroom.sidecar.workstation import MAX_OUTPUT, LocalWorkstation, Workstation
from tests.sandbox.opensandbox.execd import Execd

pytestmark = pytest.mark.anyio

ENV = {"PATH": os.environ["PATH"], "OWN": "from the agent"}
TOKEN = "sesame"


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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture(params=["local", "execd", "older execd"])
async def station(request: pytest.FixtureRequest, root: Path) -> AsyncGenerator[Workstation]:
    """The same promises for each of them."""
    if request.param == "local":
        yield LocalWorkstation(root, ENV)
        return
    async with serving(Execd(TOKEN, argv=request.param == "execd")) as port:
        yield ExecdWorkstation(ExecdAddress(port, TOKEN), root, ENV)


def python(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


async def test_a_command_is_run_by_its_words_with_folder_environment_and_exit_code(
    station: Workstation, root: Path
) -> None:
    (root / "in").mkdir()
    script = 'pwd; echo "$1" >&2; echo; echo "$OWN, $MORE"; exit 3'
    words = ("sh", "-c", script, "sh", "a 'b' $HOME ;")
    done = await station.run(RunCommand(words, "in", env={"MORE": "and more"}))
    assert done.exit_code == 3
    assert done.stdout == f"{root}/in\n\nfrom the agent, and more\n"
    assert done.stderr == "a 'b' $HOME ;\n"
    assert (done.timed_out, done.stdout_truncated, done.stderr_truncated) == (False, False, False)
    assert (await station.run(RunCommand(("true",)))).exit_code == 0


async def test_a_command_has_no_standard_input(station: Workstation) -> None:
    assert (await station.run(RunCommand(("cat",), timeout=20))).exit_code == 0


async def test_of_an_output_the_first_mebibyte_is_kept(station: Workstation) -> None:
    text = "import sys; sys.stdout.write('x' * 999 + '\\n' + ('y' * 999 + '\\n') * 3000); sys.stderr.write('short\\n')"
    done = await station.run(RunCommand(python(text)))
    assert len(done.stdout) == MAX_OUTPUT
    assert done.stdout.startswith("xxx")
    assert (done.stdout_truncated, done.stderr_truncated) == (True, False)
    assert (done.exit_code, done.stderr) == (0, "short\n")


async def test_a_command_is_killed_at_the_end_of_its_time(station: Workstation) -> None:
    done = await station.run(RunCommand(("sh", "-c", "echo begun; sleep 600"), timeout=0.4))
    assert done.timed_out
    assert done.exit_code == 137
    assert done.stdout in {"begun\n", ""}


async def test_a_command_that_a_signal_ends_has_the_exit_code_that_shells_give(
    station: Workstation,
) -> None:
    done = await station.run(RunCommand(("sh", "-c", "kill -TERM $$")))
    assert (done.exit_code, done.timed_out) == (143, False)


async def test_a_program_that_is_not_there_is_told(station: Workstation) -> None:
    try:
        done = await station.run(RunCommand(("no-such-program",)))
    except PostroomError:
        return
    assert done.exit_code == 127


async def test_a_file_is_written_read_in_pieces_listed_and_removed(
    station: Workstation, root: Path
) -> None:
    content = bytes(range(256)) * 5 + b"\r\n--boundary\r\n\n"
    await station.write("new/folder/ü b.bin", content, 0o640)
    there = root / "new/folder/ü b.bin"
    assert there.read_bytes() == content
    assert there.stat().st_mode & 0o777 == 0o640
    assert await station.read("new/folder/ü b.bin", 0, 1 << 20) == content
    assert await station.read("./new//folder/ü b.bin", 250, 12) == content[250:262]
    assert await station.read("new/folder/ü b.bin", len(content), 10) == b""
    (found,) = await station.entries("new/folder")
    assert (found.name, found.kind, found.size, found.mode) == (
        "ü b.bin",
        "file",
        len(content),
        "640",
    )
    assert [(e.name, e.kind) for e in await station.entries("")] == [("new", "folder")]
    await station.write("new/folder/ü b.bin", b"", 0o755)
    assert await station.read("new/folder/ü b.bin", 0, 10) == b""
    await station.remove("new/folder/ü b.bin")
    assert list((root / "new/folder").iterdir()) == []
    await station.remove("new")
    assert list(root.iterdir()) == []


@pytest.mark.requirement("wall-sidecar-closed")
@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/etc/passwd", "a\0b", "x" * 5000])
async def test_a_path_that_leads_out_of_the_workspace_is_refused(
    station: Workstation, root: Path, path: str
) -> None:
    (root.parent / "secret").write_text("s")
    for work in operations(station, path):
        with pytest.raises(InvalidInput):
            await work()
    with pytest.raises(InvalidInput):
        await station.run(RunCommand(("true",), path))
    assert (root.parent / "secret").read_text() == "s"


@pytest.mark.requirement("wall-sidecar-closed")
async def test_a_link_out_of_the_workspace_is_not_followed(
    station: Workstation, root: Path
) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to("/proc/self/environ")
    for work in operations(station, "folder/secret"):
        with pytest.raises(InvalidInput):
            await work()
    with pytest.raises(InvalidInput):
        await station.read("file", 0, 100)
    with pytest.raises(InvalidInput):
        await station.entries("folder")
    assert (outside / "secret").read_text() == "s"


def operations(station: Workstation, path: str) -> list[Callable]:
    return [
        lambda: station.read(path, 0, 10),
        lambda: station.write(path, b"mine", 0o644),
        lambda: station.remove(path),
        lambda: station.entries(path),
    ]


async def test_what_is_not_there_is_not_found(station: Workstation) -> None:
    for work in (station.read("none", 0, 1), station.remove("none"), station.entries("none")):
        with pytest.raises(NotFound, match="none"):
            await work
    with pytest.raises(InvalidInput):
        await station.run(RunCommand(("true",), "none"))
    with pytest.raises(InvalidInput):
        await station.remove("")


async def test_a_process_left_behind_holds_no_local_command_open(root: Path) -> None:
    done = await LocalWorkstation(root, ENV).run(
        RunCommand(("sh", "-c", "sleep 600 & echo done"), timeout=20)
    )
    assert (done.exit_code, done.stdout, done.timed_out) == (0, "done\n", False)


async def test_a_pipe_in_the_workspace_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(InvalidInput, match="not a file"):
        await LocalWorkstation(root, ENV).read("pipe", 0, 1)


# What is execd's alone.


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_command_of_execd_is_its_child_and_known_to_it(root: Path) -> None:
    execd = Execd(TOKEN)
    async with serving(execd) as port:
        station = ExecdWorkstation(ExecdAddress(port, TOKEN), root, ENV)
        await station.run(RunCommand(("echo", "hello there")))
    (command,) = execd.commands.values()
    assert command.content == '["echo", "hello there"]'


async def test_an_older_execd_is_asked_by_words_once(root: Path) -> None:
    execd, words = Execd(TOKEN, argv=False), ("echo", "it's")
    async with serving(execd) as port:
        station = ExecdWorkstation(ExecdAddress(port, TOKEN), root, ENV)
        await station.run(RunCommand(words))
    (command,) = execd.commands.values()
    assert command.content == f"exec {shlex.join(words)}"


async def test_pings_in_a_long_silence_are_no_output(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.sandbox.opensandbox.execd.PING", 0.02)
    async with serving(Execd(TOKEN)) as port:
        station = ExecdWorkstation(ExecdAddress(port, TOKEN), root, ENV)
        done = await station.run(RunCommand(("sh", "-c", "sleep 0.3; echo late")))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "late\n", "")


async def test_a_wrong_token_is_told_without_repeating_it(root: Path) -> None:
    async with serving(Execd(TOKEN)) as port:
        station = ExecdWorkstation(ExecdAddress(port, "wrong-one"), root, ENV)
        with pytest.raises(PeerError, match="401") as caught:
            await station.run(RunCommand(("true",)))
    assert "wrong-one" not in str(caught.value)
    assert "wrong-one" not in repr(ExecdAddress(port, "wrong-one"))


async def test_an_execd_that_is_away_is_told(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BusDisconnected):
        await ExecdWorkstation(ExecdAddress(port), root, ENV).entries("")


@asynccontextmanager
async def saying(*pieces: bytes, hold: bool = False) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """An execd that answers each request with these bytes; its port and what it was asked."""
    asked: list[bytes] = []
    free = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if hold and asked[-1].startswith(b"POST"):
            await free.wait()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        free.set()
        server.close()


INIT = b'{"type":"init","text":"c0ffee"}\n\n{"type":"ping","text":"pong"}\n\n'
END = b'{"type":"execution_complete","execution_time":3}\n\n'


@pytest.mark.parametrize("prefix", [b"", b"data: "])
async def test_frames_are_read_wherever_they_are_cut_and_in_both_framings(
    root: Path, prefix: bytes
) -> None:
    out = prefix + '{"type":"stdout","text":"ü"}\n\n'.encode()
    whole = prefix + INIT + out + prefix + b'{"type":"new","x":1}\n\n' + prefix + END
    async with saying(*(bytes([byte]) for byte in whole)) as (port, _):
        done = await ExecdWorkstation(ExecdAddress(port), root, ENV).run(RunCommand(("x",)))
    assert (done.exit_code, done.stdout) == (0, "ü\n")


async def test_the_end_of_a_command_is_not_waited_for_longer_than_its_last_frame(
    root: Path,
) -> None:
    async with saying(INIT, END, hold=True) as (port, _):
        done = await ExecdWorkstation(ExecdAddress(port), root, ENV).run(RunCommand(("x",)))
    assert done.exit_code == 0


@pytest.mark.parametrize("rest", [b"", b"{nope\n\n", b"[]\n\n", b'{"type":"error"}\n\n'])
async def test_a_stream_without_its_end_or_with_nonsense_is_an_error(
    root: Path, rest: bytes
) -> None:
    async with saying(INIT, rest) as (port, _):
        with pytest.raises(ProtocolViolation):
            await ExecdWorkstation(ExecdAddress(port), root, ENV).run(RunCommand(("x",)))


async def test_a_frame_without_measure_is_left_out_and_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FRAME", 1000)
    long = b'{"type":"stdout","text":"' + b"x" * 5000 + b'"}\n\n'
    async with saying(INIT, long, END) as (port, _):
        done = await ExecdWorkstation(ExecdAddress(port), root, ENV).run(RunCommand(("x",)))
    assert (done.exit_code, done.stdout, done.stdout_truncated) == (0, "", True)


async def test_a_command_that_execd_does_not_end_is_interrupted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 0.1)
    async with saying(INIT, hold=True) as (port, asked):
        with pytest.raises(PostroomError, match="took over"):
            await ExecdWorkstation(ExecdAddress(port), root, ENV).run(
                RunCommand(("x",), timeout=0.1)
            )
    assert asked[-1].startswith(b"DELETE /command?id=c0ffee ")
