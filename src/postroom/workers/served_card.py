"""Reads the Agent Card that a worker's own A2A server serves, from outside its wall.

On this machine the way in is a socket in the worker's state folder; on another machine it is the daemon of its
container. The worker owns that folder, so no link in it is followed. The socket is opened as what it is, and connected
to through its descriptor: no renaming can exchange that, and its path is short however deep the folder lies. The
worker wrote the answer, so its time and size are bounded.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from postroom.directory.cards import CARD_PATH, SERVER_SOCKET
from postroom.errors import (
    BusDisconnected,
    Conflict,
    EnvironmentFault,
    ProtocolViolation,
    RequestTimeout,
)
from postroom.http.client import Dial, HttpClient, Streams, by_tcp
from postroom.http.connection import CHUNK
from postroom.protocol.limits import MAX_CARD_BYTES
from postroom.protocol.records import read_record
from postroom.sandbox.port import Inward

TIMEOUT = 5.0
"""Seconds for the whole exchange."""


async def fetch_card(folder: Path, *, timeout: float = TIMEOUT) -> bytes:
    """Read the Agent Card from the server in a worker's state folder: a JSON object, otherwise unchecked.

    Raises:
        Conflict: no server listens there.
        ProtocolViolation: the file is not a socket, or the answer is not such an object.
        RequestTimeout: it took longer than `timeout` seconds.
        EnvironmentFault: this system cannot open a socket without following links.
    """
    with _connected(folder) as connection:
        dial = partial(asyncio.open_unix_connection, sock=connection, limit=CHUNK)
        return await _get(dial, CARD_PATH, {"host": "worker"}, timeout)


async def fetch_far_card(inward: Inward, *, timeout: float = TIMEOUT) -> bytes:
    """The same from a worker on another machine."""
    parts = urlsplit(inward.url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    reach = by_tcp(parts.hostname or "", port, tls)

    async def dial() -> Streams:
        try:
            return await reach()
        except OSError as error:
            raise Conflict(
                f"the worker's sandbox cannot be reached: {error}", remedy="try again in a moment"
            ) from error

    headers = {**inward.headers, "host": parts.netloc}
    return await _get(dial, f"{parts.path}/{CARD_PATH.lstrip('/')}", headers, timeout)


async def _get(dial: Dial, path: str, headers: Mapping[str, str], timeout: float) -> bytes:
    http = HttpClient("the worker's A2A server", dial, headers, step=timeout, answer=timeout)
    try:
        async with asyncio.timeout(timeout), await http.ask("GET", path) as answer:
            if answer.status != 200:
                raise ProtocolViolation(f"the worker's A2A server answered {answer.status}")
            body = await answer.whole(MAX_CARD_BYTES)
    except TimeoutError as error:
        raise RequestTimeout("the worker's A2A server did not answer in time") from error
    except BusDisconnected as error:  # it listened, then broke off
        raise ProtocolViolation(error.message) from error
    read_record(body)
    return body


@contextmanager
def _connected(folder: Path) -> Generator[socket.socket]:
    """A connection to the socket in `folder`."""
    if sys.platform != "linux":
        raise EnvironmentFault("a worker's A2A server can be reached from outside on Linux only")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)  # a full queue refuses, and we do not wait
        with _opened(folder) as descriptor:
            connection.connect(f"/proc/self/fd/{descriptor}")
        yield connection
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError) as error:
        raise Conflict(
            "the worker's A2A server does not listen", remedy="try again in a moment"
        ) from error
    except NotADirectoryError as error:
        raise ProtocolViolation("the worker's state folder is not a folder") from error
    except OSError as error:  # a socket of another kind, a folder or a socket that is closed to us
        raise ProtocolViolation(
            f"{SERVER_SOCKET} cannot be connected to: {error.strerror}"
        ) from error
    finally:
        connection.close()


@contextmanager
def _opened(folder: Path) -> Generator[int]:
    """A descriptor of the socket itself, whatever its name means later."""
    parent = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.open(SERVER_SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        if not stat.S_ISSOCK(os.fstat(found).st_mode):
            raise ProtocolViolation(f"{SERVER_SOCKET} in the worker's state folder is not a socket")
        yield found
    finally:
        os.close(found)
