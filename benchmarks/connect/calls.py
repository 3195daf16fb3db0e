"""A call of a tool by MCP over HTTP beside the same call of the API: at most 3 ms more, 6 by the versions before."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import httpx2

from benchmarks.report import Sheet
from benchmarks.room import post_room

ROUNDS, CALLS = 7, 200
QUICK_ROUNDS, QUICK_CALLS = 1, 20

VERSION = "2026-07-28"
BEFORE = "2025-11-25"
ACCEPT = {"accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}

Arguments = Callable[[], dict[str, Any]]
Ask = Callable[[], httpx2.Response]


def measure(sheet: Sheet, *, quick: bool) -> None:
    """The three ways to the same operation take turns, on one connection each that is kept."""
    rounds, calls = (QUICK_ROUNDS, QUICK_CALLS) if quick else (ROUNDS, CALLS)
    with post_room() as room, room.client() as client:
        key = client.add_agent("app")["key"]["key"]
        client.add_agent("api")
        base, headers = room.server["url"], {"authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=base, headers=headers, verify=False) as http:
            number = itertools.count()

            def letter() -> dict[str, Any]:
                return {"to": "@api", "text": f"letter {next(number)}"}

            looks = _ways(http, "a2a_whoami", dict, lambda: http.get("/v1/me"))
            sends = _ways(
                http, "a2a_send_message", letter, lambda: http.post("/v1/messages", json=letter())
            )
            for what, ways in (("who am I", looks), ("send", sends)):
                for ask in ways.values():
                    _timed(ask, calls // 4)
                found: dict[str, list[float]] = {way: [] for way in ways}
                for _ in range(rounds):
                    for way, ask in ways.items():
                        found[way].append(_timed(ask, calls))
                for way, values in found.items():
                    sheet.add(f"{what}, {way}, p50", values, "ms")
                for way in list(ways)[1:]:
                    more = [own - api for own, api in zip(found[way], found["API"], strict=True)]
                    sheet.add(f"{what}, {way}: above the API", more, "ms")
    sheet.note(
        f"One caller, one call at a time, {calls} of each kind in a round; the ways take turns."
    )
    sheet.note(f"MCP: {VERSION}, without a handshake; and {BEFORE}, whose session began before.")


def _ways(http: httpx2.Client, tool: str, arguments: Arguments, plain: Ask) -> dict[str, Ask]:
    modern = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": tool}
    return {
        "API": plain,
        f"MCP {VERSION}": lambda: _called(http, tool, arguments(), modern, META),
        f"MCP {BEFORE}": lambda: _called(
            http, tool, arguments(), {"mcp-protocol-version": BEFORE}, None
        ),
    }


def _called(
    http: httpx2.Client,
    tool: str,
    arguments: Mapping[str, Any],
    headers: dict[str, str],
    meta: Mapping[str, Any] | None,
) -> httpx2.Response:
    params = {"name": tool, "arguments": arguments} | ({"_meta": meta} if meta else {})
    asked = {"jsonrpc": "2.0", "id": os.urandom(4).hex(), "method": "tools/call", "params": params}
    answer = http.post("/mcp", json=asked, headers=ACCEPT | headers)
    if answer.json()["result"].get("isError"):
        raise RuntimeError(answer.text)
    return answer


def _timed(ask: Ask, calls: int) -> float:
    """Median milliseconds of a call."""
    taken = []
    for _ in range(calls):
        begun = perf_counter()
        ask().raise_for_status()
        taken.append((perf_counter() - begun) * 1e3)
    return median(taken)
