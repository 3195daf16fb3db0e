"""A post room that tells what it does inside: the database's counters, and where the processor time goes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.plane.costs import TEMPLATE, WORKERS
from benchmarks.plane.findings import Findings
from benchmarks.plane.load import Loaded, Request
from benchmarks.plane.sides import Side
from benchmarks.room import DEADLINE, PostRoom, scratch_folder

WATCHED = Path(__file__).with_name("watched.py")


@dataclass
class Watched:
    """A running post room, and the way to ask it.

    Attributes:
        room: the post room.
    """

    room: PostRoom
    _asking: int
    _file: Path

    def look(self, *, trace: bool = False) -> dict[str, Any]:
        """`counters`, since the start, `stacks` and `asked`, since the last look.

        Args:
            trace: keep what SQLite is asked for until the next look.

        Raises:
            RuntimeError: it did not answer.
        """
        self._file.unlink(missing_ok=True)
        os.write(self._asking, b"trace\n" if trace else b"\n")
        end = time.monotonic() + DEADLINE
        while not self._file.exists():
            if time.monotonic() > end:
                raise RuntimeError("the watched post room does not answer")
            time.sleep(0.02)
        return json.loads(self._file.read_text(encoding="utf-8"))


@contextlib.contextmanager
def watched_room(
    side: Side, *, profile: bool = False, more: Mapping[str, str] | None = None
) -> Generator[Watched]:
    """A post room of `side` that can be looked into; `more` is added to its environment."""
    with scratch_folder() as scratch:
        room, file = PostRoom(scratch, side.python), scratch / "seen.json"
        room.env |= more or {}
        reading, writing = os.pipe()
        env = room.env | {"PLANE_ASK": str(reading)} | ({"PLANE_PROFILE": "1"} if profile else {})
        words = ("--state", str(room.state), "up", "--port", "0", "--nats-port", "0")
        said = scratch / "up.log"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [side.python, str(WATCHED), str(file), *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(reading,),
            )
        os.close(reading)
        try:
            _until_ready(process, room, said)
            yield Watched(room, writing, file)
        finally:
            pids = [room.server["nats_pid"]] if (room.state / "server.json").exists() else []
            room.end([])
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(DEADLINE)
            if process.poll() is None:
                process.kill()
                room.end(pids)
            os.close(writing)


def _until_ready(process: subprocess.Popen[bytes], room: PostRoom, said: Path) -> None:
    end = time.monotonic() + DEADLINE
    while b"ready after" not in said.read_bytes():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"it did not start: {said.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
    room.client().close()


async def transactions(
    found: Findings, sides: Sequence[Side], works: Mapping[str, Request], counts: Mapping[int, int]
) -> None:
    """How often each side's control plane uses its database for one message and for one task."""
    for side in sides:
        with watched_room(side) as watched:
            room = watched.room
            uids = [room.idle_worker(f"w{number}", TEMPLATE)["uid"] for number in range(WORKERS)]
            async with AsyncExitStack() as stack:
                loaded = Loaded(side, room, uids, stack)
                for name, request in works.items():
                    for concurrent, count in counts.items():
                        whom = uids[:1] if concurrent == 1 else uids
                        await loaded.batch(request, whom, 20, concurrent)
                        before = watched.look()["counters"]
                        await loaded.batch(request, whom, count, concurrent)
                        after = watched.look()["counters"]
                        for counter in sorted(after.keys() - {"waiting"}):
                            each = (after[counter] - before.get(counter, 0)) / count
                            found.keep(f"{name} x{concurrent}: {counter}", side.name, each, "")
