"""The client of all contenders: bytes, one kept-alive connection for each call under way, a new message id for each.

`python -m benchmarks.fronts.client URL TOKEN`, spoken to in lines of JSON: `{"concurrency", "seconds", "limit",
"pause"}` is a turn, whose answer is what `Turn` has, or `{"error"}`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import sys
from time import perf_counter, time
from urllib.parse import urlsplit

from benchmarks.a2a.peers.load import CALL_TIMEOUT, LEAST, Turn
from benchmarks.spread import percentile

TEXT = "the quick brown fox jumps over the lazy dog; " * 4
COMPLETED = b"TASK_STATE_COMPLETED"

_HOLE = "0" * 32


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """A turn, and when each task was known to be completed, by its id (seconds since the epoch)."""

    turn: Turn
    told: dict[str, float]


class Load:
    """Calls of one server, which answer with a completed task.

    Args:
        url: of the agent.
        token: bearer token, "" for none.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        message = {"messageId": _HOLE, "role": "ROLE_USER", "parts": [{"text": TEXT}]}
        params = {"message": message}
        call = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": params}
        body = json.dumps(call).encode()
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nA2A-Version: 1.0\r\n{authorization}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._before, self._behind = (head.encode() + body).split(_HOLE.encode())
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._told: dict[str, float] = {}

    async def turn(self, concurrency: int, seconds: float, limit: int, pause: float) -> Measured:
        """Calls for so many seconds, at most `limit` (0 for no limit), with `pause` seconds behind each.

        Raises:
            RuntimeError: a task was not completed.
        """
        took: list[float] = []
        begun, started = perf_counter(), 0
        self._told = {}

        async def repeat() -> None:
            nonlocal started
            while True:
                late = perf_counter() - begun >= seconds and started >= LEAST * concurrency
                if late or (limit and started >= limit):
                    return
                started += 1
                begin = perf_counter()
                await self._call()
                took.append(perf_counter() - begin)
                if pause:
                    await asyncio.sleep(pause)

        async with asyncio.timeout(seconds + CALL_TIMEOUT), asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(repeat())
        while self._free:  # a server may close what is idle until the next turn
            self._free.pop()[1].close()
        rate = len(took) / (perf_counter() - begun)
        ranks = [1000 * percentile(took, share) for share in (0.5, 0.99)]
        return Measured(
            Turn(len(took), rate, 1000 * sum(took) / len(took), *ranks), dict(self._told)
        )

    async def _call(self) -> None:
        if self._free:
            reader, writer = self._free.pop()
        else:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(b"%b%b%b" % (self._before, secrets.token_hex(16).encode(), self._behind))
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(size)
        if COMPLETED not in body:
            raise RuntimeError(f"no completed task: {body[:300]!r}")
        task = body.partition(b'"task":')[2].partition(b'"id":')[2].partition(b'"')[2]
        self._told[task.partition(b'"')[0].decode()] = time()
        self._free.append((reader, writer))


async def main(url: str, token: str) -> None:
    """Do what is asked for on standard input."""
    load = Load(url, token)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            measured = await load.turn(**json.loads(line))
        except Exception as error:  # noqa: BLE001 (it ends the part of its contender)
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}), flush=True)
        else:
            print(json.dumps(dataclasses.asdict(measured)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
