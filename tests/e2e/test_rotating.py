"""`postroom keys rotate` on a whole post room: workers behind their walls go on working."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom, until

ECHO = str(EXAMPLES / "echo.toml")


@pytest.mark.timeout(180)
@pytest.mark.requirement("identity-rotation-seamless")
@pytest.mark.slow
def test_a_worker_goes_on_over_every_rotation_and_the_next_start(room: PostRoom):
    room.up()
    room.run("spawn", ECHO)
    room.await_state("echo", "idle")
    before = room.worker("echo")

    for kind in ("--account", "--proxy", "--operator"):
        rotated = room.json("keys", "rotate", kind)
        assert (rotated["cut"], rotated["steps"]) == ([], [])
        room.run("send", "@echo", f"after {kind}")
        assert until(lambda kind=kind: f"after {kind}" in room.run("inbox"))

    keys = room.json("keys", "list", "--signing")["keys"]
    assert {key["state"] for key in keys} == {"identity", "active"}
    after = room.worker("echo")
    assert (after["uid"], after["pid"]) == (before["uid"], before["pid"])
    room.run("down")
    room.up()
    room.await_state("echo", "idle")
    room.run("send", "@echo", "after all")
    assert until(lambda: "after all" in room.run("inbox"))
    assert room.json("keys", "list", "--signing")["keys"] == keys
