"""Alerts of a whole post room, as its operator meets them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import PostRoom, until

pytestmark = [pytest.mark.timeout(120)]

FRAIL = """
[worker]
name = "frail"

[workstation]
command = ["sh", "-c", "test -e fit && exec cat; touch fit; exit 3"]

[sidecar]
restart_limit = 0
"""


def alerts(room: PostRoom, *options: str) -> list[dict[str, Any]]:
    return room.json("alerts", *options)["alerts"]


@pytest.mark.slow
@pytest.mark.requirement("alerts-cause-once")
def test_an_alert_goes_when_its_worker_runs_again_or_it_is_cleared_also_over_a_restart(
    room: PostRoom,
):
    room.up()
    for nick in ("frail", "gone"):
        room.run("spawn", room.template(FRAIL, nick), "--name", nick, status=1)
    until(lambda: {alert["nick"] for alert in alerts(room)} == {"frail", "gone"})
    said = room.run("alerts")
    assert "@frail the agent ended" in said
    assert not any(len(word) == 32 for word in said.split())

    room.run("restart", "@frail")
    until(lambda: {alert["nick"] for alert in alerts(room)} == {"gone"})
    room.run("stop", "@gone")
    assert room.run("alerts", "clear").startswith("cleared ")
    assert room.run("alerts") == "no alerts\n"
    room.run("down")
    room.up()
    assert room.run("alerts") == "no alerts\n"
    assert {alert["ended"] for alert in alerts(room, "--all")} == {
        "cleared",
        "it was started again",
    }
    assert room.json("status")["alerts"] == []
