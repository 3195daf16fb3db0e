"""The MCP server of a client's session: passes lines on to `postroom connect run`, and its answers back.

Run as a file, with no package but the standard library's: `python -I -S relay.py FOLDER CLIENT PID`. A request that was
under way when `run` ended is answered with an error that says so: it may have been done.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each attempt to reach `run`."""

_SESSION = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID")
"""Where clients say which session it is."""


class Relay:
    """One server, to the end of its client."""

    def __init__(self, folder: str, client: str, pid: str) -> None:
        self._folder = folder
        session = next((os.environ[name] for name in _SESSION if os.environ.get(name)), "-")
        self._head = f"mcp {client} {pid} {session}\n".encode()
        self._client = client
        self._link: socket.socket | None = None
        self._open: dict[str, dict[str, Any]] = {}
        self._greeting = b""

    def serve(self) -> None:
        """Pass lines both ways until the client closes."""
        asked, answered = b"", b""
        while True:
            sources = [0] if self._link is None else [0, self._link]
            ready, _, _ = select.select(sources, [], [])
            if self._link in ready:
                piece = self._received()
                answered = self._passed(answered + piece) if piece else self._lost()
            if 0 in ready:
                piece = os.read(0, 65536)
                if not piece:
                    return
                *lines, asked = (asked + piece).split(b"\n")
                for line in lines:
                    self._ask(line)

    def _received(self) -> bytes:
        try:
            return self._link.recv(65536) if self._link is not None else b""
        except OSError:
            return b""

    def _passed(self, said: bytes) -> bytes:
        """Give whole lines to the client; returns the rest."""
        *lines, rest = said.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, AttributeError, RecursionError):
                self._open.pop(json.dumps(json.loads(line).get("id")), None)
            _written(line + b"\n")
        return rest

    def _ask(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            method, number = message.get("method"), message.get("id")
        except (ValueError, AttributeError, RecursionError):
            return
        link = self._connected()
        if link is None:
            if number is not None and method:
                self._fail(
                    message, "postroom connect run is not there: postroom doctor connect says why"
                )
            return
        if number is not None and method:
            self._open[json.dumps(number)] = message
        try:
            link.sendall(line + b"\n")
        except OSError:
            self._lost()

    def _connected(self) -> socket.socket | None:
        if self._link is not None:
            return self._link
        for pause in _PAUSES:
            time.sleep(pause)
            link = socket.socket(socket.AF_UNIX)
            try:
                os.chdir(self._folder)
                link.connect("run.sock")
                link.sendall(self._head)
            except OSError:
                link.close()
                self._begin()
            else:
                self._link = link
                return link
        return None

    def _begin(self) -> None:
        """Have `run` begun, as a hook does it."""
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        words = ["sh", f"{self._folder}/hook", self._client, "begin"]
        with contextlib.suppress(OSError):
            os.waitpid(os.posix_spawnp("sh", words, os.environ, file_actions=actions), 0)
        os.close(null)

    def _lost(self) -> bytes:
        """`run` has ended: nobody knows what became of what it was asked."""
        if self._link is not None:
            self._link.close()
        self._link = None
        for message in self._open.values():
            self._fail(
                message,
                "postroom connect run ended meanwhile: this may have been done, look before you repeat it",
            )
        self._open.clear()
        return b""

    def _fail(self, message: dict[str, Any], words: str) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "tools/call":
            answer["result"] = {
                "content": [{"type": "text", "text": f"Postroom: {words}."}],
                "isError": True,
            }
        else:
            answer["error"] = {"code": -32603, "message": words}
        _written(json.dumps(answer).encode() + b"\n")


def _written(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        Relay(*sys.argv[1:4]).serve()
