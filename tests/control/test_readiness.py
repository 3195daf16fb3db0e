"""`/readyz` over a room whose database or bus goes and comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from postroom.control import readiness
from postroom.control.readiness import Readiness
from tests.control.taskroom import TaskRoom, task_room
from tests.postgres import PostgresServer, running_postgres

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("http-readyz-truthful")]

SECONDS = 20.0
READY = (200, {"ready": True})


@pytest.fixture
def server() -> Generator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
async def room(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[TaskRoom]:
    monkeypatch.setattr(Readiness, "fresh", 0.0)
    url = server.new_database()
    async with task_room(tmp_path, memory=False, database_url=url) as room:
        yield room


async def asked(room: TaskRoom) -> tuple[int, Any]:
    answer = await room.api.get("/readyz", headers={"Authorization": ""})
    return answer.status_code, answer.json()


async def until(room: TaskRoom, expected: tuple[int, Any]) -> None:
    """Until it answers so."""
    answer = await asked(room)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            while answer != expected:
                await asyncio.sleep(0.05)
                answer = await asked(room)
    assert answer == expected


async def test_it_names_the_database_while_that_is_away(room: TaskRoom, server: PostgresServer):
    assert await asked(room) == READY

    await asyncio.to_thread(server.stop)
    assert await asked(room) == (503, {"ready": False, "away": ["database"]})
    assert (await room.api.get("/v1/tasks")).status_code == 503
    assert (await room.api.get("/livez")).status_code == 200

    await asyncio.to_thread(server.start)
    await until(room, READY)
    assert (await room.api.get("/v1/tasks")).status_code == 200


async def test_a_database_that_says_nothing_is_away_and_many_that_ask_are_one_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asks = 0

    async def silent(_work: Any) -> None:
        nonlocal asks
        asks += 1
        await asyncio.Event().wait()

    async with task_room(tmp_path) as room:
        monkeypatch.setattr(Readiness, "patience", 0.1)
        monkeypatch.setattr(Readiness, "fresh", SECONDS)
        monkeypatch.setattr(room.parts.database, "point", silent)
        looks = Readiness(room.parts)
        found = await asyncio.gather(*(looks.away() for _ in range(50)))

    assert found == [[readiness.DATABASE]] * 50
    assert asks == 1


async def test_it_names_the_bus_while_that_is_away(tmp_path: Path):
    async with task_room(tmp_path, memory=False) as room:
        await room.rig.stop(kill=True)
        await until(room, (503, {"ready": False, "away": ["bus"]}))
        await room.rig.start()
        await until(room, READY)
