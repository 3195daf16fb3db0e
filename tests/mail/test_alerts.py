"""Alerts: one for each cause, until the cause goes or a person clears it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from postroom.errors import NotFound
from postroom.mail.alerts import AlertService, AlertView
from postroom.mail.projection import RULES
from postroom.projection.changes import ALERTS
from postroom.projection.rebuild import rebuild
from postroom.projection.submit import append_alert
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert, AlertEnd
from postroom.store.alerts import MOST_OF_AGENT
from postroom.store.database import Database
from postroom.store.migrate import migrate
from tests.mail.desk import SECONDS, Desk, running_desk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    async with running_desk(tmp_path) as desk:
        yield desk


async def settled(desk: Desk) -> list[AlertView]:
    """What stands when everything that was raised is folded."""
    await desk.fold.reached("ALERTS", await desk.admin.last_sequence("ALERTS"), SECONDS)
    return await desk.alerts.standing()


async def texts(desk: Desk) -> list[str]:
    return [alarm.row.text for alarm in await settled(desk)]


@pytest.mark.requirement("alerts-cause-once")
async def test_what_happens_again_is_the_same_alert_with_its_count_last_time_and_last_words(
    desk: Desk,
):
    bob = await desk.worker("bob")
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 1", bob.uid))
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 2", bob.uid))
    (alarm,) = await settled(desk)
    shown = alarm.as_json()
    assert (shown["nick"], shown["text"], shown["count"]) == ("bob", "ended: exit code 2", 2)
    assert shown["id"] == 1
    assert shown["first_at"] <= shown["at"]
    assert shown["ended"] == ""


@pytest.mark.requirement("alerts-cause-once")
async def test_the_start_of_a_worker_ends_what_was_raised_about_it_before_and_nothing_else(
    desk: Desk,
):
    bob, ann = await desk.worker("bob"), await desk.worker("ann")
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 1", bob.uid))
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 1", ann.uid))
    await append_alert(bob.bus, Alert("", "cannot reach the database"))
    before = await desk.alerts.reached()
    await append_alert(
        bob.bus, Alert("", "cannot reach it again")
    )  # of the new run, which was quicker
    await desk.alerts.end("it was started again", who=bob.uid, upto=before)

    standing = await settled(desk)
    assert {(a.who.nick, a.row.text) for a in standing if a.who} == {
        ("ann", "ended: exit code 1"),
        ("bob", "cannot reach it again"),
    }
    ended = [a.as_json()["ended"] for a in await desk.alerts.all()]
    assert ended.count("it was started again") == 2


@pytest.mark.requirement("alerts-cause-once")
async def test_a_cause_that_has_gone_ends_its_alert_and_may_come_back(desk: Desk):
    await desk.alerts.raise_alert(Alert("audit-unwritable", "the audit log cannot be written"))
    await desk.alerts.raise_alert(Alert("audit-unwritable", ""))
    assert await texts(desk) == []
    await desk.alerts.raise_alert(
        Alert("audit-unwritable", "", "")
    )  # what has ended is not ended again
    assert await desk.admin.last_sequence("ALERTS") == 2
    await desk.alerts.raise_alert(Alert("audit-unwritable", "once more"))
    (alarm,) = await settled(desk)
    assert (alarm.row.id, alarm.row.count) == (3, 1)


@pytest.mark.requirement("alerts-cause-once")
async def test_a_removed_worker_has_no_alerts(desk: Desk):
    bob = await desk.worker("bob")
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 1", bob.uid))
    await append_alert(bob.bus, Alert("", "help"))
    assert len(await settled(desk)) == 2
    await desk.directory.retire(bob.uid)
    assert await settled(desk) == []
    assert {a.as_json()["nick"] for a in await desk.alerts.all()} == {"bob"}


@pytest.mark.requirement("alerts-cause-once")
async def test_cleared_alerts_stay_cleared_over_a_rebuild_and_what_is_new_does_not(
    desk: Desk, tmp_path: Path
):
    bob = await desk.worker("bob")
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 1", bob.uid))
    await desk.alerts.raise_alert(Alert("worker-limit", "was ended: memory", bob.uid))
    await append_alert(bob.bus, Alert("", "help"))
    assert len(await settled(desk)) == 3

    assert await desk.alerts.clear(2) == 1
    assert sorted(await texts(desk)) == ["ended: exit code 1", "help"]
    with pytest.raises(NotFound):
        await desk.alerts.clear(2)
    assert await desk.alerts.clear() == 2
    assert await desk.alerts.clear() == 0
    assert await settled(desk) == []
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 3", bob.uid))
    assert await texts(desk) == ["ended: exit code 3"]

    before = await desk.alerts.all()
    other = Database(tmp_path / "other.db")
    await migrate(other)
    await rebuild(other, desk.admin, RULES, None)
    again = AlertService(desk.bus, desk.admin, other, desk.changes)
    assert [alarm.row for alarm in await again.all()] == [alarm.row for alarm in before]
    await other.close()


@pytest.mark.requirement("mail-floods-contained")
async def test_an_agent_that_floods_pushes_out_its_own_alerts_and_comes_after_ours(desk: Desk):
    bob = await desk.worker("bob")
    await desk.alerts.raise_alert(Alert("audit-unwritable", "the audit log cannot be written"))
    for number in range(MOST_OF_AGENT + 3):
        await append_alert(bob.bus, Alert("", f"help {number}"))
    standing = await texts(desk)
    assert standing[0] == "the audit log cannot be written"
    assert standing[1:] == [f"help {n}" for n in range(MOST_OF_AGENT + 2, 2, -1)]


async def test_an_agent_can_end_no_alert_and_raise_none_about_another(desk: Desk):
    bob, ann = await desk.worker("bob"), await desk.worker("ann")
    await desk.alerts.raise_alert(Alert("worker-ended", "ended: exit code 1", ann.uid))
    await append_alert(bob.bus, AlertEnd("cleared"))
    await bob.bus.publish(
        subjects.alerts(bob.uid), Alert("worker-ended", "is bad", ann.uid, "x").encode()
    )
    found = [(a.who and a.who.nick, a.row.kind, a.row.text) for a in await settled(desk)]
    assert found == [
        ("ann", "worker-ended", "ended: exit code 1"),
        ("bob", "", "is bad"),
        ("bob", "", "cleared"),
    ]


async def test_a_flood_that_is_not_told_again_is_over(desk: Desk):
    bob = await desk.worker("bob")
    await desk.alerts.raise_alert(
        Alert("worker-flood", "is held back at its door: too much", bob.uid)
    )
    (alarm,) = await settled(desk)
    desk.alerts._clock = lambda: alarm.row.at + 301.0
    assert await desk.alerts.standing() == []


async def test_who_waits_for_alerts_is_told_of_an_end(desk: Desk):
    await desk.alerts.raise_alert(Alert("audit-unwritable", "the audit log cannot be written"))
    await settled(desk)
    with desk.changes.listen(ALERTS) as listener:
        await desk.alerts.raise_alert(Alert("audit-unwritable", ""))
        assert not isinstance(await listener.next(SECONDS), str)
