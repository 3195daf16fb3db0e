"""What the post room says about itself as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from postroom import disk
from postroom.protocol.alerts import Alert
from tests.control.taskroom import task_room

pytestmark = pytest.mark.anyio


async def test_status_says_that_the_bus_is_away_and_is_answered_all_the_same(tmp_path: Path):
    async with task_room(tmp_path) as room:
        before = (await room.api.get("/v1/status")).json()["bus"]
        await room.rig.stop(kill=True)
        async with asyncio.timeout(20):
            while room.parts.bus.statistics().connected:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(0.01)

        away = (await room.api.get("/v1/status")).json()["bus"]
        await room.rig.start()

    assert (before, away) == ("", "the bus does not answer")


@pytest.mark.requirement("disk-full-refused")
async def test_status_says_that_the_disk_is_full_before_anything_runs_into_it(
    tmp_path: Path,
):
    async with task_room(tmp_path) as room:
        object.__setattr__(room.parts, "space", lambda: disk.check_space(tmp_path, 2**60))
        told = (await room.api.get("/v1/status")).json()["bus"]

    full = "the disk of the post room is full: messages, tasks and starts are refused"
    assert told == f"{full} until there is space"


@pytest.mark.requirement("alerts-cause-once")
async def test_a_rule_that_a_worker_broke_stands_in_its_detail_until_the_alert_is_cleared(
    tmp_path: Path,
):
    async with task_room(tmp_path) as room:
        alice = await room.worker("alice")
        office = room.parts.alerts
        text = "broke a rule at its door: Permissions Violation for Publish to worker.x.inbox.y"
        await office.raise_alert(Alert("worker-violation", text, alice.uid))
        last = await room.rig.admin.last_sequence("ALERTS")
        await room.parts.fold.reached("ALERTS", last, 10)

        [shown] = (await room.api.get("/v1/alerts")).json()["alerts"]
        detail = (await room.api.get("/v1/workers/alice")).json()["detail"]
        assert (shown["nick"], shown["text"]) == ("alice", text)
        assert text in detail
        assert alice.uid not in detail

        assert (await room.api.delete(f"/v1/alerts/{shown['id']}")).json() == {"cleared": 1}
        assert (await room.api.delete("/v1/alerts/x")).status_code == 404
        assert text not in (await room.api.get("/v1/workers/alice")).json()["detail"]
