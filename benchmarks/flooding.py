"""One key floods a post room: `python -m benchmarks.flooding URL KEY KIND CONNECTIONS SECONDS`; prints what it got."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from urllib.parse import urlsplit

SIZE = 370 * 1024
TO = b'{"to":"@taker",'


def _nested() -> bytes:
    inside = b",".join(b'"%d":[[[]]]' % number for number in range(20_000))
    return TO + b'"parts":[{"data":{%b}}]}' % inside


def _most(to: bytes = TO) -> bytes:
    return to + b'"parts":[{"data":[%b]}]}' % b",".join([b"[]"] * 4950)


def _rows() -> bytes:
    row = json.dumps({"name": "x" * 90, "value": 17})
    return TO + b'"parts":[{"data":[%b]}]}' % b",".join([row.encode()] * 3200)


OUTBOX = "/v1/agents/taker/outbox/stream"

KINDS: dict[str, Callable[[], bytes]] = {
    "nested": _nested,
    "most": _most,
    "absent": lambda: _most(b'{"to":"@nobody",'),
    "rows": _rows,
    "text": lambda: TO + b'"text":"%b"}' % (b"word, " * (SIZE // 6)),
    "escapes": lambda: TO + b'"text":"%b"}' % (b'\\"' * (SIZE // 2)),
    "huge": lambda: TO + b'"text":"%b"}' % (b"x" * 8_000_000),
    "streams": lambda: b"",
}
"""What a request has for its body; `streams` opens streams and closes them."""


async def flood(url: str, key: str, kind: str, connections: int, seconds: float) -> Counter[int]:
    """Ask on so many connections; returns how often each status came (0 for a connection that was cut)."""
    parts = urlsplit(url)
    body, found = KINDS[kind](), Counter[int]()
    method, path = ("GET", OUTBOX) if kind == "streams" else ("POST", "/v1/messages")
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request, end = head.encode() + body, time.monotonic() + seconds

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            while time.monotonic() < end:
                writer.write(request)
                answer = await reader.readuntil(b"\r\n\r\n")
                found[int(answer.split()[1])] += 1
                if kind == "streams":
                    return
                size = answer.lower().partition(b"content-length:")[2].split()
                await reader.readexactly(int(size[0]) if size else 0)
        finally:
            writer.close()

    async def go_on() -> None:
        while time.monotonic() < end:
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + seconds + 5):
                    await ask()
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                found[0] += 1

    await asyncio.gather(*(go_on() for _ in range(connections)))
    return found


if __name__ == "__main__":
    to, secret, what, number, long = sys.argv[1:]
    print(json.dumps(asyncio.run(flood(to, secret, what, int(number), float(long)))))
