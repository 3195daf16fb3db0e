"""A unix socket that is listened on: at a path of any length, for its owner alone."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

MAX_ADDRESS = 103
"""Bytes of a socket's address that every system takes (Linux takes 107)."""


def bind_unix(path: Path) -> socket.socket:
    """A socket at `path` that nobody can connect to yet; what is left of a killed run there is replaced.

    Raises:
        OSError: there can be none.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        if len(os.fsencode(path)) <= MAX_ADDRESS:
            listener.bind(os.fspath(path))
        else:
            _bind_by_folder(listener, path)
        # Nobody can connect before `listen`, so it is never open to others.
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    return listener


def _bind_by_folder(listener: socket.socket, path: Path) -> None:
    """Linux only: the folder is named by an open descriptor, so the address is short."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
