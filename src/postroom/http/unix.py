"""Unix sockets: addresses of any length, and whose process is at the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

MAX_ADDRESS = 103
"""Bytes of a unix socket's address that every system takes (Linux takes 107)."""

_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED = 0, 1, 76
"""macOS: level, option and size of a peer's credentials (unix(4), sys/ucred.h)."""


@contextmanager
def short_address(path: Path) -> Generator[str]:
    """An address of the socket at `path` that is short enough, while the context lasts.

    A long one leads over an open descriptor of its folder (Linux only). Raises OSError.
    """
    if len(os.fsencode(path)) <= MAX_ADDRESS:
        yield os.fspath(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def bind_unix(path: Path) -> socket.socket:
    """A socket at `path` that does not listen yet; replaces what a killed run has left there. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with short_address(path) as address:
            listener.bind(address)
        # Before `listen` no program can connect, so the socket is never open to others.
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    return listener


def peer_uid(descriptor: int) -> int:
    """The user whose process connected, or began to listen, at the other end of a connected unix socket.

    Raises OSError.
    """
    with socket.socket(fileno=os.dup(descriptor)) as link:
        if sys.platform == "linux":
            said = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return struct.unpack("=iII", said)[1]
        said = link.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED)
        return struct.unpack_from("=II", said)[1]
