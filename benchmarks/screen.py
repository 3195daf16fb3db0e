"""The full-screen terminal: from key to screen while 50 workers are busy, its start, its memory, its idling."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.eventplane import KEY
from benchmarks.events import INTERVAL, TEXT, Many, Plane, make_events, plane_of, server_of
from benchmarks.processes import MIB, memory, processor_time
from benchmarks.report import Sheet
from benchmarks.room import environment, scratch_folder
from benchmarks.spread import percentile
from tests import near

ROWS, COLUMNS = 48, 160
PATIENCE = 60.0
"""Seconds to wait for anything that the screen is to show."""

PAUSE = 0.25
"""Seconds between two keys."""

KEYS = "жшщъэюяюэъщшж"
"""Typed one after the other: letters that stand nowhere else, so that what shows one answers that key."""

NOTES = (
    "The screen runs in a pseudo terminal of 160 x 48; it shows one worker, and what all of them do in its lists.",
    "start: from the start of the process to its first frame, and to the first worker in it. Files are cached.",
    "idle: processor time of the screen while nothing happens, in percent of one core.",
    "busy: 50 workers report 20 events a second each. One process plays them, and shares the cores with the screen.",
    "key: from the write of a letter to the terminal until the screen has written that letter.",
    "growth: resident memory of the screen at the end beside that after a fifth of the time.",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done."""

    starts: int
    workers: int
    idle: float
    busy: float


FULL = Plan(starts=7, workers=50, idle=30.0, busy=300.0)
QUICK = Plan(starts=1, workers=50, idle=5.0, busy=8.0)


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about seven minutes."""
    asyncio.run(_measure(sheet, QUICK if quick else FULL))


class Pty:
    """A command on a pseudo terminal, whose output is searched as it comes."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self.written = 0
        self._found: asyncio.Future[float] | None = None
        self._wanted: Callable[[str], bool] = lambda _: False
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    @property
    def text(self) -> str:
        """What came last, for a message."""
        return self._text[-2000:]

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the program has ended
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            return
        self.written += len(data)
        self._text = (self._text + self._decoder.decode(data))[-65536:]
        if self._found is not None and not self._found.done() and self._wanted(self._text):
            self._found.set_result(time.perf_counter())

    async def shows(self, wanted: Callable[[str], bool]) -> float:
        """Wait until what was written since the last wait has it; the instant."""
        self._wanted = wanted
        self._found = asyncio.get_running_loop().create_future()
        if wanted(self._text):
            self._found.set_result(time.perf_counter())
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._found
        except TimeoutError:
            raise RuntimeError(f"the screen does not show it: {self.text!r}") from None

    def forget(self) -> None:
        """Search only what comes from now on."""
        self._text = ""

    def type(self, text: str) -> None:
        """As a person would."""
        os.write(self._descriptor, text.encode())


@asynccontextmanager
async def on_terminal(state: Path, scratch: Path, *words: str) -> AsyncGenerator[tuple[Pty, float]]:
    """`postroom` with `words` on a terminal, and the instant of its start."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = environment(scratch) | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    env.pop("NO_COLOR", None)
    begun = time.perf_counter()
    process = subprocess.Popen(  # noqa: ASYNC220 (its terminal is awaited, not its pipes)
        [sys.executable, "-m", "postroom", "--state", str(state), *words],
        stdin=far,
        stdout=far,
        stderr=far,
        env=env,
        start_new_session=True,
    )
    os.close(far)
    try:
        yield Pty(near, process), begun
    finally:
        asyncio.get_running_loop().remove_reader(near)
        process.kill()
        process.wait()
        os.close(near)


async def _measure(sheet: Sheet, plan: Plan) -> None:
    with scratch_folder() as folder:
        async with AsyncExitStack() as stack:
            server, _ = await server_of(folder, stack)
            plane = await stack.enter_async_context(plane_of(folder, server.url, plan.workers))
            state = folder / "screen"
            _announce(state, plane)
            await _starts(sheet, plan, state, folder)
            async with on_terminal(state, folder, "attach", "@w0") as (screen, _):
                await screen.shows(lambda text: "w1" in text)
                await _idle(sheet, plan, screen)
                await _busy(sheet, plan, plane, screen)
    for text in NOTES:
        sheet.note(text)


def _announce(state: Path, plane: Plane) -> None:
    """Write the file by which commands find the post room."""
    state.mkdir(mode=0o700)
    found = {
        "url": f"http://127.0.0.1:{plane.port}",
        "pid": plane.pid,
        "token": KEY,
        "nats_url": "",
        "nats_pid": 0,
        "started_at": "",
        "version": "",
        "state": str(state),
    }
    file = state / "server.json"
    file.touch(0o600)
    file.write_text(json.dumps(found))
    near.offer(state)


async def _starts(sheet: Sheet, plan: Plan, state: Path, scratch: Path) -> None:
    first, whole = [], []
    for number in range(plan.starts + 1):  # the first one fills the caches
        async with on_terminal(state, scratch, "attach", "@w0") as (screen, begun):
            drawn = await screen.shows(
                lambda text: "\x1b[?1049h" in text and text.count("\n") + text.count("H") > ROWS
            )
            shown = await screen.shows(lambda text: "w1" in text)
        if number:
            first.append((drawn - begun) * 1000)
            whole.append((shown - begun) * 1000)
    sheet.add("start: first frame", first, "ms")
    sheet.add("start: workers shown", whole, "ms")


async def _idle(sheet: Sheet, plan: Plan, screen: Pty) -> None:
    await asyncio.sleep(3.0)  # what follows the start
    spent, begun = processor_time(screen.process.pid), time.perf_counter()
    await asyncio.sleep(plan.idle)
    took = time.perf_counter() - begun
    used = (processor_time(screen.process.pid) - spent) / took * 100
    sheet.add("idle: processor", [used], "%")


async def _busy(sheet: Sheet, plan: Plan, plane: Plane, screen: Pty) -> None:
    found, delays, resident = Many(), [], []
    counted = round(plan.busy / INTERVAL)
    pid, plane_pid = screen.process.pid, plane.pid
    spent, theirs, begun = processor_time(pid), processor_time(plane_pid), time.perf_counter()
    screen.type("i")

    async def keys() -> None:
        number = 0
        while time.perf_counter() - begun < plan.busy:
            letter = KEYS[number % len(KEYS)]
            screen.forget()
            pressed = time.perf_counter()
            screen.type(letter)
            delays.append(await screen.shows(lambda text, letter=letter: letter in text) - pressed)
            screen.type("\x7f")
            number += 1
            await asyncio.sleep(PAUSE)

    async def watch() -> None:
        for _ in range(5):
            await asyncio.sleep(plan.busy / 5)
            resident.append(memory([pid]).rss)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keys())
        tasks.create_task(watch())
        for uid in plane.workers:
            tasks.create_task(make_events(plane, uid, counted, found))
    took = time.perf_counter() - begun
    sheet.add("busy: events made", [found.made / took], "/s")
    sheet.add("busy: key p50", [percentile(delays, 0.5) * 1000], "ms")
    sheet.add("busy: key p99", [percentile(delays, 0.99) * 1000], "ms")
    sheet.add("busy: screen, processor", [(processor_time(pid) - spent) / took * 100], "%")
    plane_used = (processor_time(plane_pid) - theirs) / took * 100
    sheet.add("busy: control plane, processor", [plane_used], "%")
    sheet.add("busy: screen, memory", [resident[-1] / MIB], "MiB")
    sheet.add("busy: growth", [(resident[-1] - resident[0]) / MIB], "MiB")
    sheet.note(f"An event is a text of {len(TEXT)} characters.")
