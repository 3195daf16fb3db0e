"""The owner's way in: the command line talks to the post room of its own account and to nobody else.

Another account is a process that gives up root for another uid before it does anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from postroom.client.http import AsyncClient
from postroom.errors import NotFound
from tests.e2e.conftest import PostRoom, gone, until

MALLORY = 54321
AS_MALLORY = f"""
import os, socket, sys
os.setgroups([])
os.setgid({MALLORY})
os.setuid({MALLORY})
"""
LISTEN = """
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
"""
LISTEN_NEAR = """
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
"""
TAKE = """
print("listening", flush=True)
while True:
    link, _ = listener.accept()
    print(link.recv(65536), flush=True)
    link.close()
"""
KNOCK = """
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
try:
    link.sendall(b"GET /livez HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(link.recv(100), flush=True)
except ConnectionError:
    print(b"", flush=True)
"""

pytestmark = [
    pytest.mark.requirement("identity-keys-private", "mend-key-to-port"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account, which root can be"),
]


class Stranger:
    """A process of another account; `heard` is what came to it, once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.heard = ""


@contextmanager
def stranger(program: str, *words: object) -> Generator[Stranger]:
    """A process of another account that listens."""
    command = [sys.executable, "-c", AS_MALLORY + program + TAKE, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "listening\n"
            made = Stranger(process)
            yield made
        finally:
            process.kill()
        made.heard = process.stdout.read()


def port_of(room: PostRoom) -> int:
    return int(room.server["url"].rpartition(":")[2])


def rewrite(room: PostRoom, **changes: object) -> None:
    """Change what `server.json` says; it stays private."""
    said = room.server | changes
    (room.state / "server.json").write_text(json.dumps(said))


def kill(room: PostRoom) -> None:
    pid = room.server["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))


COMMANDS = (("status",), ("agents",), ("approvals",), ("down", "--timeout", "1"))


def test_after_a_kill_no_key_goes_to_the_account_that_has_its_number_and_its_port(room: PostRoom):
    room.up()
    kill(room)
    with stranger(LISTEN, port_of(room)) as mallory:
        rewrite(room, pid=mallory.process.pid)
        for words in COMMANDS:
            ended = room.call(*words)
            assert ended.returncode == 3, ended
            assert "has ended without a word" in ended.stderr
            assert "postroom" in ended.stderr.partition("try:")[2]
        assert mallory.process.poll() is None  # `down` has not ended it
    assert mallory.heard == ""
    room.up()
    assert room.json("status")["server"]["pid"] == room.server["pid"]


def test_a_listener_at_the_port_gets_nothing_while_the_post_room_runs(room: PostRoom):
    room.up()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with stranger(LISTEN, port) as mallory:
        rewrite(room, url=f"http://127.0.0.1:{port}")
        assert room.json("status")["version"]
    assert mallory.heard == ""


def test_a_socket_of_another_account_in_its_place_gets_no_key(room: PostRoom):
    room.up()
    place = room.state / "control.sock"
    with near_folder() as folder:
        planted = folder / "s"
        with stranger(LISTEN_NEAR, planted) as mallory:
            place.rename(room.state / "kept")
            planted.rename(place)
            ended = room.call("status")
            assert ended.returncode != 0
            assert f"user with the uid {MALLORY}" in ended.stderr
            with room.client() as client, pytest.raises(Exception, match="not the post room"):
                client.transport.websocket("/v1/workers/x/sdk-events/stream", {})
            (room.state / "kept").rename(place)
        assert mallory.heard in ("", "b''\n" * mallory.heard.count("\n"))
    assert room.json("status")["version"]


def test_the_socket_answers_its_owner_and_no_other_account(room: PostRoom):
    room.up()
    place = room.state / "control.sock"
    assert place.stat().st_mode & 0o777 == 0o600
    for folder in (room.scratch, room.state):
        folder.chmod(0o711)
    place.chmod(0o666)  # more than anybody has done
    command = [sys.executable, "-c", AS_MALLORY + KNOCK, str(place)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    assert said.stdout == "b''\n"
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(str(place))
        own.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert own.recv(100).startswith(b"HTTP/1.1 200 ")
        own.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 401 " in until(lambda: own.recv(4096))  # and still the key


def test_it_works_in_a_deep_folder_with_streams_and_websockets(room: PostRoom):
    room.state = room.scratch / ("d" * 100) / ("e" * 100) / "state"
    room.up()
    assert room.json("status")["version"]
    with room.client() as client:
        events = client.follow_everything()
        assert next(iter(events)).kind == "open"
        events.close()
        with pytest.raises(NotFound):
            client.transport.websocket("/v1/workers/nobody/sdk-events/stream", {})
    asyncio.run(_by_tasks(room.state))
    room.run("down")
    assert not (room.state / "control.sock").exists()


async def _by_tasks(state: Path) -> None:
    """The same by the client for tasks."""
    async with AsyncClient.at(state) as client:
        async with aclosing(aiter(client.follow_everything())) as events:
            assert (await anext(events)).kind == "open"
            await client.send((await client.me())["uid"], "hello", expects_reply=False)
            assert (await anext(events)).kind == "mail"
        url = await client.put_blob(io.BytesIO(b"x" * 100_000), "text/plain")
        assert sum([len(piece) async for piece in client.get_blob(url)]) == 100_000
        assert [await client.has_blob(each) for each in (url, url[:-4] + "0000")] == [True, False]
        with pytest.raises(NotFound):
            await client.terminal("@nobody", 80, 24)
        with pytest.raises(NotFound):
            await anext(aiter(client.events("@nobody")))


@contextmanager
def near_folder() -> Generator[Path]:
    """A folder in which the other account may make a socket."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


# ── a flood ──


def start(room: PostRoom, files: int) -> None:
    """Start it with so many descriptors at most."""
    room.scratch.chmod(0o700)
    command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
    command += room.command("up", "--detach", "--port", "0", "--nats-port", "0")
    subprocess.run(command, env=room.env, check=True, timeout=60, capture_output=True)


@contextmanager
def flood(port: int, connections: int) -> Generator[None]:
    """So many connections that ask for nothing; each that is cut is made again, until the context ends."""
    with contextlib.ExitStack() as open_ones:
        for _ in range(connections):
            link = open_ones.enter_context(socket.socket())
            link.settimeout(5)
            with contextlib.suppress(OSError):
                link.connect(("127.0.0.1", port))
        yield


def is_full(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        link.settimeout(5)
        try:
            link.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            return b" 200 " not in link.recv(1000)
        except (ConnectionError, TimeoutError):
            return True


@pytest.mark.requirement("owner-way-in")
def test_the_owner_gets_in_while_strangers_hold_every_connection(room: PostRoom):
    start(room, 512)
    with flood(port_of(room), 600):
        until(lambda: is_full(port_of(room)))
        for _ in range(3):
            assert room.json("status")["version"]
        assert room.json("agents")
        assert is_full(port_of(room))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.requirement("owner-way-in")
def test_the_owner_gets_in_while_12000_strangers_hold_every_connection(room: PostRoom):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 14_000:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        start(room, 20_000)
        with flood(port_of(room), 12_000):
            until(lambda: is_full(port_of(room)))
            for _ in range(5):
                assert room.json("status")["version"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
