"""The control plane is killed while events flow: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.eventplane import KEY, token_of
from postroom.client.http import Client
from postroom.client.locate import ServerAddress
from postroom.client.stream import WorkerEvents
from postroom_a2a.retry import RetryPolicy
from tests.rig import Rig, running_server

pytestmark = pytest.mark.anyio

SECONDS = 60.0
ROOT = Path(__file__).parent.parent.parent
EVENTS = 400
BATCH = 5
KILLS = 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Plane:
    """A control plane that is killed and started again on its ports and its state."""

    def __init__(self, folder: Path, rig: Rig) -> None:
        self._words = [str(folder), rig.url]
        self.port, self.door = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """The uid of its worker, once it is ready."""
        words = [*self._words, str(self.port), str(self.door), "1"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.eventplane", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], SECONDS)[0], "it does not start"
        line = self._process.stdout.readline()
        assert line, "it did not start"
        return json.loads(line)["workers"][0]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


async def report(plane: Plane, uid: str, done: asyncio.Event) -> int:
    """Report numbered events as a sidecar does: the next batch once the one before is stored; returns repetitions."""
    repeated, first = 0, 1
    headers = {"Authorization": f"Bearer {token_of(uid)}"}
    url = f"http://127.0.0.1:{plane.door}/v1/workers/{uid}/sdk-events"
    async with httpx2.AsyncClient(headers=headers, timeout=5.0) as door:
        while first <= EVENTS:
            said = [{"type": "text", "text": str(first + at)} for at in range(BATCH)]
            body = {"run": "r", "first": first, "events": said}
            try:
                answer = await door.post(url, json=body)
            except httpx2.HTTPError:
                answer = None
            if answer is None or answer.status_code >= 500:
                repeated += 1
                await asyncio.sleep(0.02)
                continue
            assert answer.status_code == 202, answer.text
            first = answer.json()["next"]
    done.set()
    return repeated


def follow(plane: Plane, uid: str, seen: list[dict[str, Any]]) -> None:
    """Follow as the command line does, from the first event to the last."""
    address = ServerAddress(f"http://127.0.0.1:{plane.port}", 0, KEY)
    with closing(Client.on(lambda: address)) as client:
        path = f"/v1/workers/{uid}/sdk-events/stream"
        retry = RetryPolicy(attempts=2000, base=0.02, cap=0.1)
        for event in WorkerEvents(client.transport, path, retry=retry):
            seen.append(event)
            if len(seen) >= EVENTS:
                return


@pytest.mark.requirement("events-folded-once")
async def test_a_control_plane_that_is_killed_in_mid_flow_loses_nothing_and_doubles_nothing(
    tmp_path: Path,
):
    async with running_server(tmp_path, memory=False) as rig, asyncio.timeout(SECONDS):
        plane = Plane(tmp_path, rig)
        uid = await asyncio.to_thread(plane.start)
        seen: list[dict[str, Any]] = []
        try:
            done = asyncio.Event()
            reporting = asyncio.create_task(report(plane, uid, done))
            following = asyncio.create_task(asyncio.to_thread(follow, plane, uid, seen))
            for kill in range(1, KILLS + 1):
                while len(seen) < kill * EVENTS // (KILLS + 2):  # noqa: ASYNC110 (of a thread)
                    await asyncio.sleep(0.002)
                await asyncio.to_thread(plane.kill)
                assert not done.is_set(), "it was killed after the end"
                assert await asyncio.to_thread(plane.start) == uid
            repeated = await reporting
            await following
        finally:
            await asyncio.to_thread(plane.kill)
        assert repeated >= KILLS
        assert [event["text"] for event in seen] == [str(at) for at in range(1, EVENTS + 1)]
        assert [event["id"] for event in seen] == sorted({event["id"] for event in seen})
