"""Commands of Postroom without the cost of their imports: one process imports all of it, and forks for each command.

    done = prefork().run(["--state", state, "status"], env, None, 20.0)
    pid = prefork().start(["--state", state, "up"], env, log, ready)

A command that a test starts so is `postroom` in a process of its own, from its arguments to its exit status; only
`python -m postroom` before it is missing, which the tests of the README, of the pages and of the command line prove.
`prefork().sidecar(env, log)` does the same for `python -m postroom.sidecar`, as sandboxes start it in end-to-end tests.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from postroom.cli.detach import READY_FD

SIDECAR = "postroom.sidecar.main"
PRELOADED = (SIDECAR, "postroom.control.org", "postroom.client.http", "pydantic.v1")
ROOT = Path(__file__).resolve().parents[1]
SOURCE = os.pathsep.join(str(ROOT / folder) for folder in ("src", "a2a/src"))
FORK_TIMEOUT = 30.0
"""Seconds until it says that a command has begun; the first one waits for all imports."""

LARGEST = 128 * 1024
"""Bytes of the arguments and the environment of one command, as JSON."""


@cache
def prefork() -> Prefork:
    """The one for all tests of this process."""
    found = Prefork()
    atexit.register(found.close)
    return found


class Prefork:
    """The process that forks, as its parent sees it; it ends with its parent."""

    def __init__(self) -> None:
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.prefork", str(far.fileno())],
                cwd=ROOT,
                # Not that of the test which happens to be the first: some put another control plane in the way.
                env=os.environ | {"PYTHONPATH": SOURCE},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(far.fileno(),),
                start_new_session=True,
            )

    def run(
        self, words: Sequence[str], env: Mapping[str, str], given: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with `given` as its standard input."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            reading, writing = os.pipe()
            answers = self._fork(words, env, reading, out.fileno(), err.fileno())
            os.close(reading)
            content = (given or "").encode()
            feeding = threading.Thread(target=_feed, args=(writing, content), daemon=True)
            feeding.start()
            with answers:
                pid = int(answers.recv(64))
                answers.settimeout(timeout)
                try:
                    status = int(answers.recv(64))
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise
                finally:
                    feeding.join(FORK_TIMEOUT)
            return subprocess.CompletedProcess(words, status, _text(out), _text(err))

    def start(self, words: Sequence[str], env: Mapping[str, str], log: Path, inherited: int) -> int:
        """Start a command in a session of its own, which has the descriptor `inherited`; returns its pid."""
        with Path(os.devnull).open("rb") as nothing, log.open("ab") as output:
            said = output.fileno()
            with self._fork(words, env, nothing.fileno(), said, said, inherited) as answers:
                return int(answers.recv(64))

    def sidecar(self, env: Mapping[str, str], log: Path) -> Forked:
        """Start a sidecar."""
        with Path(os.devnull).open("rb") as nothing, log.open("ab") as output:
            said = output.fileno()
            answers = self._fork([SIDECAR], env, nothing.fileno(), said, said)
        return Forked(int(answers.recv(64)), answers)

    def close(self) -> None:
        """End it."""
        self._control.close()
        try:
            self._process.wait(FORK_TIMEOUT)
        except subprocess.TimeoutExpired:  # a child that a test forked holds the other copy
            self._process.kill()
            self._process.wait(FORK_TIMEOUT)

    def _fork(self, words: Sequence[str], env: Mapping[str, str], *files: int) -> socket.socket:
        request = {"words": list(words), "env": dict(env), "folder": os.getcwd()}  # noqa: PTH109
        answers, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            answers.settimeout(FORK_TIMEOUT)
            socket.send_fds(self._control, [json.dumps(request).encode()], [far.fileno(), *files])
        return answers


class Forked:
    """A process that the prefork started, with the methods of `asyncio.subprocess.Process` that tests use."""

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._answers = answers
        self._waiting = asyncio.Lock()
        answers.setblocking(False)

    async def wait(self) -> int:
        """Wait for its end; its exit status, negative for a signal."""
        async with self._waiting:
            if self.returncode is None:
                answer = await asyncio.get_running_loop().sock_recv(self._answers, 64)
                self._answers.close()
                self.returncode = int(answer)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _feed(pipe: int, content: bytes) -> None:
    with suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(content)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def serve(control: socket.socket) -> list[str]:
    """Fork for each request; returns in each child, with the words of its command."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector, control:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    selector.unregister(key.fd)
                    _tell_end(key.fd, *running.pop(key.fd))
                    continue
                request, files, _, _ = socket.recv_fds(control, LARGEST, 5)
                if not request:
                    os._exit(0)
                answers = socket.socket(fileno=files.pop(0))
                pid = os.fork()
                if not pid:
                    break
                for file in files:
                    os.close(file)
                with suppress(OSError):  # who asked has been interrupted meanwhile
                    answers.send(b"%d" % pid)
                watched = os.pidfd_open(pid)
                running[watched] = pid, answers
                selector.register(watched, selectors.EVENT_READ)
            else:
                continue
            break
    for watched, (_, others) in running.items():
        os.close(watched)
        others.close()
    answers.close()
    return _become(json.loads(request), files)


def _tell_end(watched: int, pid: int, answers: socket.socket) -> None:
    os.close(watched)
    _, status = os.waitpid(pid, 0)
    # Nobody listens to the end of what runs in the background.
    with answers, suppress(OSError):
        answers.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    if ready := files[3:]:
        os.setsid()
        os.set_inheritable(ready[0], True)
        os.environ[READY_FD] = str(ready[0])
    return request["words"]


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    commands = importlib.import_module("postroom.cli.commands")
    found = pkgutil.walk_packages(commands.__path__, "postroom.cli.commands.")
    for name in (*PRELOADED, *(module.name for module in found)):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1
    words = serve(control)
    if words == [SIDECAR]:
        sys.exit(importlib.import_module(SIDECAR).main())
    importlib.import_module("postroom.cli").main(words)


if __name__ == "__main__":
    main()
