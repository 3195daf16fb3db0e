"""A server or a client: `python -m benchmarks.a2a.peers serve|call OPTIONS`, spoken to in lines of JSON.

A server says `{"address"}` and serves until its input ends. A client says `{"ready"}`, does each order of its input,
`{"work", "size", "concurrency", "seconds", "limit"}`, and answers what `load.Turn` has, or `{"error"}`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys

from benchmarks.a2a.peers.kinds import Options, kind
from benchmarks.a2a.peers.load import Order, turn


async def _serve(options: Options) -> None:
    async with kind(options.kind).serve(options) as address:
        _say({"address": address})
        await asyncio.to_thread(sys.stdin.read)


async def _call(options: Options) -> None:
    async with kind(options.kind).connect(options) as caller:
        _say({"ready": True})
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                done = await turn(caller, Order(**json.loads(line)))
            except Exception as error:  # noqa: BLE001 - whatever a client raises ends its part in the comparison
                _say({"error": _first(error)})
            else:
                _say(dataclasses.asdict(done))


def _first(error: Exception) -> str:
    """The first failure of a group, in one line."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


def _say(value: dict[str, object]) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    """Run what the command line says."""
    options = Options(**json.loads(sys.argv[2]))
    peer = (_serve if sys.argv[1] == "serve" else _call)(options)
    if options.uvloop:
        import uvloop  # ty: ignore[import-not-found]

        uvloop.run(peer)
    else:
        asyncio.run(peer)


if __name__ == "__main__":
    main()
