"""What a person notices while another one's key floods the post room: its sends, `/livez`, the loop's longest hold."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field

import httpx2

from benchmarks.bursts import Burst
from benchmarks.connection import Connection
from benchmarks.flooding import KINDS
from benchmarks.report import Sheet
from benchmarks.room import PostRoom, post_room

FULL = (("nested", 1), ("nested", 8), *((kind, 24) for kind in KINDS))
QUICK = (("nested", 24), ("most", 24), ("streams", 8))

PAUSE = 0.02
"""Seconds between two sends of the person."""

NOTES = (
    "quiet, flooded: the operator's sends of a line, one after the other, without and with the flood, in turns.",
    "held: the longest hold of the control plane's loop in the whole run (postroom_loop_held_seconds).",
    "nested: 20,000 times [[[]]], refused. most: 4,950 empty arrays, as many values as are taken; absent: to nobody.",
    "rows, text, escapes: 370 KiB of a table, of prose and of quotation marks. huge: 8 MB. streams: opened and closed.",
    "taken: requests of the flood a second that were carried out; the key has its usual limits.",
    "The flood, the person, nats-server and the control plane share the cores: a busy machine shows in every figure.",
)


@dataclass(slots=True)
class _Found:
    """What one flood did, round by round."""

    quiet: list[Burst] = field(default_factory=list)
    flooded: list[Burst] = field(default_factory=list)
    livez: list[Burst] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about six minutes."""
    rounds, seconds = (1, 3.0) if quick else (3, 3.0)
    for kind, connections in QUICK if quick else FULL:
        with post_room() as room:
            found, held = asyncio.run(_rounds(room, kind, connections, rounds, seconds))
        _tell(sheet, f"{kind}, {connections} connections", found, held)
    for text in NOTES:
        sheet.note(text)


async def _rounds(
    room: PostRoom, kind: str, connections: int, rounds: int, seconds: float
) -> tuple[_Found, float]:
    server, found = room.server, _Found()
    headers = {"Authorization": f"Bearer {server['token']}"}
    async with (
        httpx2.AsyncClient(base_url=server["url"], headers=headers) as api,
        Connection(server["url"], server["token"]) as person,
        Connection(server["url"]) as stranger,
    ):
        (await api.post("/v1/people", json={"nick": "taker"})).raise_for_status()
        made = await api.post("/v1/people", json={"nick": "flooder", "scopes": ["read", "send"]})
        key = made.raise_for_status().json()["key"]["key"]
        await _sends(person, 0.5)
        for _ in range(rounds):
            found.quiet.append(await _sends(person, seconds))
            words = (server["url"], key, kind, str(connections), str(seconds + 1))
            flood = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.flooding", *words, stdout=asyncio.subprocess.PIPE
            )
            await asyncio.sleep(1)  # it has begun then
            one, other = await asyncio.gather(_sends(person, seconds), _looks(stranger, seconds))
            found.flooded.append(one)
            found.livez.append(other)
            said = json.loads((await flood.communicate())[0])
            taken = sum(count for status, count in said.items() if 200 <= int(status) < 300)
            found.taken.append(taken / (seconds + 1))
        text = (await api.get("/metrics")).text
    line = next(line for line in text.splitlines() if line.startswith("postroom_loop_held_seconds"))
    return found, float(line.split()[-1])


async def _sends(person: Connection, seconds: float) -> Burst:
    return await _calls(person, "POST", "/v1/messages", {"to": "@taker", "text": "hello"}, seconds)


async def _looks(stranger: Connection, seconds: float) -> Burst:
    return await _calls(stranger, "GET", "/livez", None, seconds)


async def _calls(
    caller: Connection, method: str, path: str, body: dict[str, str] | None, seconds: float
) -> Burst:
    latencies: list[float] = []
    await caller.open()  # one that rests is closed after a few seconds
    begin = time.perf_counter()
    while (at := time.perf_counter()) < begin + seconds:
        await caller.call(method, path, body)
        latencies.append(time.perf_counter() - at)
        await asyncio.sleep(PAUSE)
    return Burst(time.perf_counter() - begin, latencies)


def _tell(sheet: Sheet, title: str, found: _Found, held: float) -> None:
    for name, bursts in (("quiet", found.quiet), ("flooded", found.flooded)):
        sheet.add(f"{title}: {name} p50", [each.latency(0.5) for each in bursts], "ms")
        sheet.add(f"{title}: {name} p99", [each.latency(0.99) for each in bursts], "ms")
    sheet.add(f"{title}: livez p99", [each.latency(0.99) for each in found.livez], "ms")
    sheet.add(f"{title}: held", [1000 * held], "ms")
    sheet.add(f"{title}: taken", found.taken, "/s")
    sheet.compare(
        f"p99 flooded/quiet, {title}",
        [each.latency(0.99) for each in found.flooded],
        [each.latency(0.99) for each in found.quiet],
    )
