"""The audit log of a whole post room, as its operator sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroom_a2a.times import parse_time
from tests.e2e.conftest import EXAMPLES, PostRoom, until

pytestmark = [pytest.mark.timeout(120)]


@pytest.mark.slow
@pytest.mark.requirement("audit-once-in-order", "audit-acts-explained")
def test_the_operator_sees_what_a_worker_did_and_only_that(room: PostRoom):
    room.up()
    for nick in ("one", "two"):
        room.run("spawn", str(EXAMPLES / "echo.toml"), "--name", nick)
    room.run("send", "@one", "hello", "--wait", "answered")

    def records(*options: str) -> list[dict[str, Any]]:
        said = room.run("audit", "--json", "--limit", "0", *options)
        return [json.loads(line) for line in said.splitlines()]

    uids = {line["worker"] for line in records() if line["by"] == "gateway"}
    assert len(uids) == 2
    [uid] = {line["worker"] for line in records("--worker", "@one")}
    assert uid in uids
    assert "nats" in {line.get("protocol") for line in records("--worker", "@one")}
    assert "@one" in room.run("audit", "--worker", "@one")

    # Two beats of an idle worker, of 5 s each, and all that goes with them, are no line more.
    for nick in ("one", "two"):
        room.await_state(nick, "idle")
    before, seen = len(records("--all")), last_seen(room, "two")
    until(lambda: last_seen(room, "two") > seen + 9)
    more = records("--all")[before:]
    assert [line["verb"] for line in more if line["by"] == "gateway"] in ([], ["plumbing"])
    assert "lines of plumbing not shown (--all)" in room.run("audit")
    room.run("audit", "--task", "zzz", status=4)

    room.run("stop", "@one")
    until(lambda: any(line["verb"] == "close" for line in records("--worker", uid)))
    assert all(line["worker"] == uid for line in records("--worker", uid))
    assert {line["verdict"] for line in records("--denied")} <= {"denied"}
    # The copy follows; it is kept over a restart.
    cursor = room.state / "audit-copy.json"
    until(lambda: json.loads(cursor.read_text())["offset"] > 0)


def last_seen(room: PostRoom, nick: str) -> float:
    return parse_time(room.worker(nick)["last_seen"])
