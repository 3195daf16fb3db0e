"""A terminal in a worker's sandbox, shown in the person's own."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from postroom.client.calls import name_of
from postroom.errors import InvalidInput, PeerError

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.client.websocket import WebSocket

ESCAPE = 0x1D
"""Ctrl-], which leaves, as in telnet."""

CHUNK = 16 * 1024
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def run_raw(client: Client, ref: str) -> int:
    """Open a terminal in the sandbox of worker `ref`, and join it to this one; returns the shell's exit status.

    Raises:
        InvalidInput: this is no terminal.
        Conflict: somebody has one open there, or the worker does not run.
        PeerError: it ended in another way than by its shell.
    """
    streams = (sys.stdin, sys.stdout)
    if not all(stream is not None and stream.isatty() for stream in streams):
        raise InvalidInput(
            "--raw joins two terminals, and this is none", remedy="run it in a terminal"
        )
    columns, rows = _size()
    path = f"/v1/workers/{name_of(ref)}/terminal"
    with (
        client.transport.websocket(path, {"cols": columns, "rows": rows}) as socket,
        _raw(),
        _resized() as resized,
    ):
        click.echo("a shell in the sandbox of the worker; leave with Ctrl-]\r", err=True)
        ended = _join(socket, resized)
    return _said(ended)


def _said(ended: dict[str, Any]) -> int:
    """Say how the terminal ended; the exit status."""
    click.echo(err=True)
    if ended["type"] == "exit":
        return int(ended["status"])
    if ended["type"] == "left":
        click.echo("left: the shell has ended, the worker goes on", err=True)
        return 0
    raise PeerError(f"the terminal has ended: {ended.get('reason', '')}")


def _join(socket: WebSocket, resized: int) -> dict[str, Any]:
    """Pass on both ways until one side ends; how it did."""
    poll = select.poll()
    near = sys.stdin.fileno()
    for descriptor in (near, socket.fileno(), resized):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = {socket.fileno()} if socket.waiting else {one for one, _ in poll.poll()}
        if resized in ready:
            os.read(resized, CHUNK)
            columns, rows = _size()
            socket.send_text(json.dumps({"type": "resize", "cols": columns, "rows": rows}))
        if near in ready:
            typed = os.read(near, CHUNK)
            before, escape, _ = typed.partition(bytes([ESCAPE]))
            if before:
                socket.send_bytes(before)
            if escape or not typed:
                return {"type": "left"}
        if socket.fileno() in ready:
            message = socket.receive(0.0)
            if isinstance(message, str):
                found = json.loads(message)
                if found.get("type") in ("exit", "end"):
                    return found
            elif message:
                _write(message)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(sys.stdout.fileno())
    return max(1, size.columns), max(1, size.lines)


@contextmanager
def _raw() -> Generator[None]:
    """Hand on each key as it is; the terminal is as it was afterwards, however this ends but by SIGKILL."""
    near = sys.stdin.fileno()
    before = termios.tcgetattr(near)
    handlers: dict[signal.Signals, Any] = {}
    try:
        for number in _ENDS:
            handlers[number] = signal.signal(number, _leave)
        tty.setraw(near, termios.TCSADRAIN)  # what was typed ahead counts
        yield
    finally:
        termios.tcsetattr(near, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _resized() -> Generator[int]:
    """A descriptor that gets ready when the terminal has another size."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.signal(signal.SIGWINCH, _poke(write))
    try:
        yield read
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(read)
        os.close(write)


def _poke(descriptor: int) -> Callable[[int, FrameType | None], None]:
    def poke(_number: int, _frame: FrameType | None) -> None:
        try:
            os.write(descriptor, b"\0")
        except BlockingIOError:
            return  # it is ready already

    return poke
