"""`postroom revoke` on a whole post room: what a person sees, and what is left to a thief."""

from __future__ import annotations

import json
import time

import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom, until

ECHO = str(EXAMPLES / "echo.toml")


@pytest.mark.requirement("identity-revocation-everywhere")
def test_a_revoked_worker_is_stopped_and_stays_so_and_a_restart_makes_it_work_again(room: PostRoom):
    room.up()
    room.run("spawn", ECHO)
    room.await_state("echo", "idle")
    before = room.worker("echo")

    began = time.monotonic()
    room.run("revoke", "@echo")
    took = time.monotonic() - began
    revoked = room.worker("echo")

    assert took < 10  # the command, its imports included
    assert (revoked["state"], revoked["desired"], revoked["detail"]) == (
        "stopped",
        "revoked",
        "revoked",
    )
    room.run("down")
    room.up()
    assert room.worker("echo")["desired"] == "revoked"
    assert revoked["uid"] == before["uid"]
    trust = json.loads((room.state / "keys" / "trust.json").read_text())
    assert trust["orgs"]["default"]["revocations"]

    room.run("restart", "echo")
    room.await_state("echo", "idle")
    sent = room.json("send", "@echo", "hello")
    assert until(lambda: "hello" in room.run("inbox")), sent


@pytest.mark.slow
def test_all_credentials_are_revoked_at_once(room: PostRoom):
    room.up()
    for name in ("one", "two"):
        room.run("spawn", ECHO, "--name", name)
        room.await_state(name, "idle")

    room.run("revoke", "--all-credentials")

    assert {w["desired"] for w in room.json("status")["workers"]} == {"revoked"}
    room.run("revoke", status=2)
    room.run("revoke", "one", "--all-credentials", status=2)
