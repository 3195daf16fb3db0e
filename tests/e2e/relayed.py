"""Runs a post room whose connections to nats-server and to its API pass a relay that keeps every byte.

    python -m tests.e2e.relayed STATE CAPTURES

The bus is dialled through the relay by all that dial it: the control plane and the gateway. The API is announced at
the relay's port, and itself listens on the next free one.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from unittest import mock

from postroom.bus.embedded import EmbeddedServer
from postroom.control import run, up
from postroom.settings.sources import load


class Relay:
    """A port of loopback that passes everything on and keeps it."""

    def __init__(self, target: int, capture: Path) -> None:
        self._target = target
        self._capture = capture
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while chunk := source.recv(65536):
                with self._lock, self._capture.open("ab") as file:
                    file.write(chunk)
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


def main(state: Path, captures: Path) -> int:
    """Run it until it is told to end."""
    relays: dict[int, Relay] = {}

    def relay(port: int, name: str) -> Relay:
        if port not in relays:
            relays[port] = Relay(port, captures / f"{name}.bytes")
        return relays[port]

    direct = EmbeddedServer.url.fget
    assert direct is not None

    def url(server: EmbeddedServer) -> str:
        return direct(server).replace(f":{server.port}", f":{relay(server.port, 'nats').port}")

    real_urls, real_hosts = up._PostRoom._urls, up._PostRoom._hosts

    def urls(room: up._PostRoom, listener: socket.socket, *rest: object) -> tuple[str, ...]:
        port = listener.getsockname()[1]
        own, *others = real_urls(room, listener, *rest)  # ty: ignore[invalid-argument-type]
        return (own.replace(f":{port}", f":{relay(port, 'http').port}"), *others)

    def hosts(room: up._PostRoom, listener: socket.socket, *rest: object) -> frozenset[str]:
        port = listener.getsockname()[1]
        known = real_hosts(room, listener, *rest)  # ty: ignore[invalid-argument-type]
        passed = relay(port, "http").port
        return known | {one.replace(f":{port}", f":{passed}") for one in known}

    with (
        mock.patch.object(EmbeddedServer, "url", property(url)),
        mock.patch.object(up._PostRoom, "_urls", urls),
        mock.patch.object(up._PostRoom, "_hosts", hosts),
    ):
        return run(load(state, {"http_port": "0", "nats_port": "0"}))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
