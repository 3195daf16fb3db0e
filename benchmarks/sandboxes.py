"""From a spawn to a worker whose sidecar is ready, for each sandbox provider that this machine can have."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from nats.aio.msg import Msg

from benchmarks.buses import Buses
from benchmarks.report import Sheet
from benchmarks.room import DEADLINE, ECHO, PostRoom, post_room
from postroom.client.http import Client
from postroom.errors import SandboxUnavailable
from postroom.protocol import subjects

PROVIDERS = ("bubblewrap", "netns", "landlock", "none")
ROUNDS = 7

IMPORTS = "import postroom.sidecar.main"
"""What the sidecar loads before it does anything."""


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about a minute."""
    with post_room() as room:
        asyncio.run(_measure(sheet, room, 1 if quick else ROUNDS))


async def _measure(sheet: Sheet, room: PostRoom, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        bus = await Buses(stack, room).core()
        client = stack.enter_context(room.client())
        spawning = _Spawning(client)
        await bus.subscribe(subjects.status("*"), cb=spawning.heard)
        await bus.flush()
        left_out: dict[str, str] = {}
        first: dict[str, float] = {}
        for provider in PROVIDERS:
            try:
                first[provider] = sum(await spawning.spawn(provider))
            except SandboxUnavailable as error:
                left_out[provider] = error.message
        answered: dict[str, list[float]] = {provider: [] for provider in first}
        ready: dict[str, list[float]] = {provider: [] for provider in first}
        bare: list[float] = []
        loaded: list[float] = []
        for _ in range(rounds):
            for provider in first:
                answer, rest = await spawning.spawn(provider)
                answered[provider].append(answer)
                ready[provider].append(answer + rest)
            bare.append(await asyncio.to_thread(_python, "pass", room))
            loaded.append(await asyncio.to_thread(_python, IMPORTS, room))
    for provider, values in ready.items():
        sheet.add(f"{provider}: ready", values, "ms")
        sheet.add(f"{provider}: of that, answer to spawn", answered[provider], "ms")
        sheet.add(f"{provider}: ready, the first with its probe", [first[provider]], "ms")
    sheet.add("python alone: starts and ends", bare, "ms")
    sheet.add("python alone: with what a sidecar imports", loaded, "ms")
    for provider, values in ready.items():
        sheet.compare(f"{provider}: ready / what a sidecar imports", values, loaded)
    _notes(sheet, left_out)


def _notes(sheet: Sheet, left_out: dict[str, str]) -> None:
    sheet.note(
        "Ready: from POST /v1/workers to the first status of the worker on the bus, sent when the sidecar has "
        "tried its wall, is connected and its agent (sed, examples/echo.toml) runs."
    )
    sheet.note(
        "Answer to spawn: records, folders, consumers and credential are made, the sandbox is started."
    )
    sheet.note(
        "Where the time goes: what a sidecar imports is most of it (python alone, outside of any sandbox)."
    )
    for provider, reason in left_out.items():
        sheet.note(f"without {provider}: {reason}")


class _Spawning:
    """Spawns a worker, waits until it is ready, and removes it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._heard: dict[str, asyncio.Future[float]] = {}

    async def heard(self, message: Msg) -> None:
        """The status of some worker."""
        uid = message.subject.split(".")[1]
        first = self._of(uid)
        if not first.done():
            first.set_result(time.perf_counter())

    async def spawn(self, provider: str) -> tuple[float, float]:
        """Milliseconds until the answer, and from there until it is ready."""
        begin = time.perf_counter()
        worker = await asyncio.to_thread(self._spawn, provider)
        answer = time.perf_counter()
        async with asyncio.timeout(DEADLINE):
            ready = await self._of(worker["uid"])
        await asyncio.to_thread(self._client.remove, worker["uid"])
        return 1000 * (answer - begin), 1000 * (ready - answer)

    def _spawn(self, provider: str) -> Any:
        return self._client.spawn(
            ECHO.read_text(encoding="utf-8"), sandbox=provider, isolation="none"
        )

    def _of(self, uid: str) -> asyncio.Future[float]:
        return self._heard.setdefault(uid, asyncio.get_running_loop().create_future())


def _python(program: str, room: PostRoom) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=room.env, check=True, timeout=DEADLINE)
    return 1000 * (time.perf_counter() - begin)
