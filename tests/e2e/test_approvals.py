"""Approvals over kills and restarts: real processes, a real log, the commands of a person."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from postroom.bus.nats.bus import NatsBus
from postroom.errors import Conflict, PinPaused, PinWrong
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from postroom.protocol.events import EventBatch
from postroom.protocol.ids import CONTROL_PLANE
from postroom_a2a.times import format_time, parse_time
from tests.approvals.asking import request
from tests.e2e.conftest import EXAMPLES, PostRoom, gone, until


def report(room: PostRoom, worker: str, *events: dict[str, Any]) -> None:
    """Put what a sidecar has reported into the log, as the control plane does."""

    async def publish() -> None:
        credential = Trust.load_or_create(room.state / "keys").core_credential()
        bus = await NatsBus.connect(
            room.server["nats_url"],
            uid=CONTROL_PLANE,
            jwt=lambda: credential.jwt,
            sign=credential.sign,
            name="test",
        )
        try:
            batch = EventBatch(events, secrets.token_hex(8), 1)
            await bus.publish(subjects.events(worker), batch.encode())
        finally:
            await bus.close()

    asyncio.run(publish())


def killed(room: PostRoom) -> None:
    """SIGKILL of the control plane; nats-server ends with it."""
    pids = room.server["pid"], room.server["nats_pid"]
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: all(map(gone, pids)))


def history(room: PostRoom) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in room.json("approvals", "--history")["approvals"]}


@pytest.mark.slow
@pytest.mark.requirement("approval-one-object")
@pytest.mark.requirement("approval-first-answer-wins")
@pytest.mark.requirement("approval-never-hangs")
@pytest.mark.requirement("approval-pin-demanded")
@pytest.mark.timeout(300)
def test_approvals_survive_kills_and_a_rebuild_with_one_answer_each(room: PostRoom) -> None:
    room.up()
    uid = room.json("spawn", str(EXAMPLES / "echo.toml"))["uid"]
    room.run("stop", "echo")
    kept, brief, raced, guarded = (secrets.token_hex(16) for _ in range(4))
    expires = time.time() + 2
    report(room, uid, request(brief, expires_at=format_time(expires)))
    report(room, uid, *(request(each) for each in (kept, raced, guarded)))
    until(lambda: {*history(room)} == {kept, brief, raced, guarded})

    # Killed between request and answer; one expires while nothing runs.
    killed(room)
    time.sleep(max(0.0, expires - time.time()))
    room.up()
    assert until(lambda: history(room)[brief]["state"] == "expired")
    assert history(room)[brief]["answer"]["channel"] == "clock"
    assert room.run("status").splitlines()[1] == "needs you:"
    shown = room.run("approve", kept[:8], "--reason", "go on")
    assert shown.splitlines()[-1] == f"allowed {kept[:8]} @echo"
    room.run("deny", kept, status=5)
    assert "allowed by @" in room.stderr
    room.run("deny", brief, status=5)
    room.run("deny", "ffffffff", status=4)

    # Many clients at once, and a kill as soon as one was told that it was first.
    with room.client() as client:

        def say(number: int) -> str:
            decision = "allowed" if number % 2 else "denied"
            try:
                done = client.control("echo", raced, decision, reason=f"r{number}")
            except Conflict as error:
                return error.message
            assert done["answer"] is not None
            return done["answer"]["reason"]

        with ThreadPoolExecutor(8) as threads:
            said = list(threads.map(say, range(8)))
        (first,) = [each for each in said if each.startswith("r")]
        assert all(f"({first})" in each for each in said if each is not first)

        # A PIN, and wrong ones over a restart.
        client.set_pin("4711")
        for _ in range(5):
            with pytest.raises(PinWrong):
                client.control("echo", guarded, "allowed", pin="0000")
    killed(room)
    room.up()
    with room.client() as client:
        assert (client.approval(raced)["answer"] or {})["reason"] == first
        with pytest.raises(PinPaused):
            client.control("echo", guarded, "allowed", pin="4711")
        paused = client.pin()["paused_until"]
        assert paused is not None
        assert parse_time(paused) > time.time()
    assert history(room)[guarded]["state"] == "pending"

    before = history(room)
    room.run("down")
    room.run("admin", "rebuild")
    room.up()
    assert history(room) == before
    assert {each["state"] for each in before.values()} >= {"pending", "allowed", "expired"}
