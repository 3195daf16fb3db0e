"""Starts a post room in the background and waits until it reports that it is ready.

The child gets a pipe (`POSTROOM_READY_FD`): it writes `ready` and a newline when all of it serves, and the pipe ends
when it fails. So the wait needs no polling. A lock on the folder lets only one process at a time start a post room
there; it is held until the post room is ready.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from postroom.client.locate import ServerAddress, command, locate
from postroom.disk import check_room
from postroom.errors import (
    EXIT_CODES,
    AlreadyRunning,
    NotRunning,
    PostroomError,
    ServerFailed,
    StateUnwritable,
)

READY_TIMEOUT = 60.0
"""Seconds that a start may take; creating keys, streams and database the first time takes about two."""

READY_FD = "POSTROOM_READY_FD"
GRACE = 10.0
TAIL = 8192


def start(state: Path, options: Sequence[str] = ()) -> ServerAddress:
    """Start `postroom up` on the folder `state` in a session of its own; returns its address.

    Raises:
        AlreadyRunning: one runs there.
        ServerFailed: it did not become ready in time.
        StateUnwritable: the disk is full.
        PostroomError: it ended; the error has its output.
    """
    with _one_starter(state):
        with suppress(NotRunning):
            server = locate(state)
            raise AlreadyRunning(
                f"a post room runs already at {server.url}", remedy="postroom status"
            )
        if "--memory" not in options:
            check_room(state)
        _launch(state, options)
        return locate(state)


def ensure(state: Path) -> ServerAddress:
    """The post room on `state`, started if none runs."""
    with suppress(NotRunning):
        return locate(state)
    with suppress(AlreadyRunning):  # another command was faster
        return start(state)
    return locate(state)


def begin(state: Path) -> bool:
    """Have a post room run on `state`: whether this command has started it, which the person is told then."""
    with suppress(NotRunning):
        locate(state)
        return False
    click.echo(f"no post room is running: starting one on {state} ...", err=True)
    try:
        server = start(state)
    except AlreadyRunning:
        return False  # another command was faster
    click.echo(f"post room is up at {server.url}, {goes_on(state)}", err=True)
    return True


def goes_on(state: Path) -> str:
    """How long a post room lasts that was started by the way."""
    far = ""
    if os.environ.get("SSH_CONNECTION"):
        far = "; where a logout ends all you run: loginctl enable-linger"
    return f"and goes on after this (end it with: {command(state, 'down')}){far}"


@contextmanager
def _one_starter(state: Path) -> Generator[None]:
    """Hold the lock, so that two commands that find nothing running start one post room, not two."""
    descriptor = _take_turn(state)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def in_front(state: Path) -> Generator[None]:
    """Hold the lock around a post room in this process, which closes its descriptor when it is ready.

    A child of `start` is already covered by its parent's lock.
    """
    if READY_FD in os.environ:
        yield
        return
    descriptor = _take_turn(state)
    os.environ[READY_FD] = str(descriptor)
    try:
        yield
    finally:
        if os.environ.pop(READY_FD, ""):  # closed here only if the post room never became ready
            os.close(descriptor)


def _take_turn(state: Path) -> int:
    """Wait for the lock on `state`; returns its descriptor.

    Raises:
        StateUnwritable: the folder cannot be written.
        ServerFailed: another start takes too long.
    """
    before = os.umask(0o077)
    os.umask(before | 0o022)  # or others might put another folder in the place of this one
    try:
        (state / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(state / "starting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnwritable(
            f"cannot write the state folder {state}: {error.strerror}",
            remedy="choose another with --state DIR",
        ) from error
    finally:
        os.umask(before)
    try:
        _lock(descriptor, state)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, state: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT + GRACE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:  # flock(2) has no deadline, so try again and again
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"another start of a post room on {state} does not come to an end",
                    remedy=f"read {state / 'logs' / 'control.log'}",
                ) from error
        time.sleep(LOOK_AGAIN)


def _launch(state: Path, options: Sequence[str]) -> None:
    log = state / "logs" / "up.log"
    reading, writing = os.pipe()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    output = os.open(log, flags, 0o600)
    begin = os.fstat(output).st_size
    words = [sys.executable, "-m", "postroom", "--state", str(state), "up", *options]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {READY_FD: str(writing)},
            pass_fds=(writing,),
            start_new_session=True,
        )
    finally:
        os.close(writing)
        os.close(output)
    try:
        ready = _await_ready(reading, log)
    except BaseException:
        _end(process)
        raise
    finally:
        os.close(reading)
    if not ready:
        # The child ends by itself, and its exit status tells the kind of failure; a busy machine takes a while.
        raise _failure(_end(process, after=GRACE), log, begin)
    process.returncode = 0  # it is to outlive us: Popen need not warn that it still runs


def _await_ready(reading: int, log: Path) -> bool:
    """Whether `ready` came before the pipe ended."""
    deadline = time.monotonic() + READY_TIMEOUT
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while b"\n" not in said:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise ServerFailed(
                    f"the post room was not ready after {READY_TIMEOUT:.0f} s", remedy=f"read {log}"
                )
            chunk = os.read(reading, 256)
            if not chunk:
                return False
            said += chunk
    return said.startswith(b"ready")


def _end(process: subprocess.Popen[bytes], *, after: float = 1.0) -> int:
    """Wait for a child that failed or is not wanted, end it after `after` seconds, and return its exit status."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=after)
    process.terminate()
    try:
        return process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _failure(status: int, log: Path, begin: int) -> PostroomError:
    """The child's output since `begin`, as an error of the type that its exit status tells.

    Raises:
        StateUnwritable: the child could not write, since the disk is full.
    """
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - TAIL))
        lines = file.read(TAIL).decode(errors="replace").splitlines()
    if not any(lines):
        check_room(log.parent)  # so its output is lost
    last = next((line for line in reversed(lines) if line.strip()), f"exit status {status}")
    message, remedy = f"the post room did not start: {last.strip()}", f"read {log}"
    for index, line in enumerate(lines):
        if line.startswith("postroom: "):
            message = line.removeprefix("postroom: ")
            follows = lines[index + 1] if index + 1 < len(lines) else ""
            remedy = (
                follows.strip().removeprefix("try: ") if follows.startswith("  try:") else remedy
            )
    kinds = {code: kind for kind, code in EXIT_CODES.items()}
    return kinds.get(status, ServerFailed)(message, remedy=remedy)


LOOK_AGAIN = 0.05


class Process:
    """The process `pid`, held by a descriptor where the system has such (Linux 5.3, pidfd_open(2))."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = -1
        with contextlib.suppress(AttributeError, OSError):  # no such call here, or it has ended
            self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, timeout: float) -> bool:
        """Whether it ended within `timeout` seconds."""
        if self._descriptor < 0:
            return self._watch(timeout)
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            return bool(selector.select(timeout))

    def _watch(self, timeout: float) -> bool:
        """Poll for its end: other systems offer no event for a foreign process."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                os.kill(self._pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(LOOK_AGAIN)
        return False
