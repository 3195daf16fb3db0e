"""`postroom-agent mcp`: passes the lines of a client of MCP on to the sidecar, and its answers back.

Nothing of a message is read here, and as little as possible is imported: a client starts this for each of its sessions.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from typing import BinaryIO

MCP = "/mcp"
NOT_RUNNING = 3
"""Exit code, that of `errors.NotRunning`."""

MAX_LINE = 8 * 1024 * 1024
"""Bytes of a message; the sidecar's own limit is below."""

TIMEOUT = 120.0
"""Seconds; a tool waits less."""

AT_ONCE = 8
"""Messages that are under way: some wait for an answer, while the client goes on."""


def run(source: BinaryIO | None = None, target: BinaryIO | None = None) -> int:
    """Pass on until the client closes its end; returns the exit code."""
    source, target = source or sys.stdin.buffer, target or sys.stdout.buffer
    api = os.environ.get("POSTROOM_API", "").removeprefix("http://").rstrip("/")
    if not api:
        sys.stderr.write(
            "postroom-agent: POSTROOM_API does not say where the sidecar is; run this inside a worker of Postroom\n"
        )
        return NOT_RUNNING
    slots, writing = threading.BoundedSemaphore(AT_ONCE), threading.Lock()

    def passed(line: bytes) -> None:
        try:
            said = _asked(api, line)
            if said not in (b"", b"null"):
                with writing:
                    target.write(said + b"\n")
                    target.flush()
        except BrokenPipeError:
            pass
        finally:
            slots.release()

    threads: list[threading.Thread] = []
    while line := source.readline(MAX_LINE):
        if line.strip():
            slots.acquire()
            threads = [each for each in threads if each.is_alive()]
            threads.append(threading.Thread(target=passed, args=(line,), daemon=True))
            threads[-1].start()
    for each in threads:
        each.join()
    return 0


def _asked(api: str, line: bytes) -> bytes:
    """The sidecar's answer on one line, or an error in the protocol's own form."""
    connection = http.client.HTTPConnection(api, timeout=TIMEOUT)
    try:
        connection.request("POST", MCP, line, {"content-type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status < 400:
            return body.replace(b"\n", b" ")
        why = json.loads(body).get("detail", "")
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = f"the sidecar does not answer: {error}"
    finally:
        connection.close()
    return _fault(line, why)


def _fault(line: bytes, why: str) -> bytes:
    try:
        asked = json.loads(line)
    except ValueError:
        asked = None
    id_ = asked.get("id") if isinstance(asked, dict) else None
    if id_ is None and isinstance(asked, dict):
        return b""  # nobody waits
    error = {"code": -32603, "message": why}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": error}).encode()
