"""What a post room has in its state folder beside `server.json`, for rigs that write that file themselves.

`offer` takes the lock and serves the socket, which leads to the address that `server.json` names at the time.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from postroom.client.locate import LOCK, SOCKET
from postroom.http.unix import bind_unix

_offered: dict[Path, _Offer] = {}


class _Offer:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.by: object = None
        self.lock = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.listener = bind_unix(state / SOCKET)
        self.listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.close(self.lock)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        try:
            url = urlsplit(json.loads((self.state / "server.json").read_text())["url"])
            far = socket.create_connection((url.hostname, url.port or 80))
        except (OSError, ValueError):
            near.close()
            return
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_copy, args=(far, near), daemon=True)
        back.start()
        _copy(near, far)
        back.join()
        near.close()
        far.close()


def _copy(source: socket.socket, to: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            to.sendall(data)
    except OSError:  # one of them has gone: so does the other
        with suppress(OSError):
            source.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


def offer(state: Path, by: object = None) -> None:
    """Take the lock of `state` and serve its socket, until `withdraw`; once is enough."""
    if state not in _offered:
        _offered[state] = _Offer(state)
    _offered[state].by = by


def withdraw(state: Path, by: object = None) -> None:
    """End what `offer` began: the post room on `state` has ended, unless another has come since."""
    if state in _offered and _offered[state].by is by:
        _offered.pop(state).end()
