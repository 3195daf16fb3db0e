"""A state folder keeps to the bus that its log is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.identity.trust import Trust
from tests.cluster import running_cluster
from tests.e2e.conftest import EXAMPLES, PostRoom
from tests.e2e.test_cluster import aside, streams

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.mark.slow
@pytest.mark.requirement("nats-unfit-refused")
async def test_a_post_room_on_somebody_elses_servers_goes_on_there_and_nowhere_else(
    room: PostRoom, tmp_path: Path
) -> None:
    trust = Trust.load_or_create(room.state / "keys")
    async with (
        running_cluster(tmp_path / "a", trust, size=1) as right,
        running_cluster(tmp_path / "b", trust, size=1) as wrong,
    ):
        url = right.urls[0]
        room.env["POSTROOM_NATS_URL"] = url
        await aside(room.up)
        await aside(room.run, "spawn", str(EXAMPLES / "echo.toml"))
        await aside(room.run, "send", "@echo", "kept", "--wait", "answered")
        await aside(room.run, "down")

        del room.env["POSTROOM_NATS_URL"]
        for words in (("up", "--detach"), ("up",), ("admin", "rebuild")):
            await aside(room.run, *words, status=5)
            assert f"this post room has its log on {url}" in room.stderr
            assert f"config set nats.url {url}" in room.stderr
            assert "rebuild" not in room.stderr
        assert not (room.state / "nats").exists()

        room.env["POSTROOM_NATS_URL"] = wrong.urls[0]
        for words in (("up", "--detach"), ("admin", "rebuild")):
            await aside(room.run, *words, status=5)
            assert f"which is on {url}" in room.stderr
            assert "rebuild" not in room.stderr
        assert not await streams(wrong)

        del room.env["POSTROOM_NATS_URL"]
        await aside(room.run, "config", "set", "nats.url", url.replace("127.0.0.1", "localhost"))
        await right.nodes[0].kill()
        await right.nodes[0].start()
        await aside(room.up)
        assert "more" in await aside(room.run, "send", "@echo", "more", "--wait", "answered")
        await aside(room.run, "down")


@pytest.mark.requirement("nats-unfit-refused")
async def test_a_post_room_with_a_log_of_its_own_takes_no_other(room: PostRoom) -> None:
    await aside(room.up)
    await aside(room.run, "down")
    room.env["POSTROOM_NATS_URL"] = "nats://127.0.0.1:1"

    for words in (("up", "--detach"), ("admin", "rebuild")):
        await aside(room.run, *words, status=5)
        assert f"has its log in {room.state / 'nats'}" in room.stderr
        assert "unset POSTROOM_NATS_URL" in room.stderr

    del room.env["POSTROOM_NATS_URL"]
    await aside(room.up)


async def test_a_post_room_that_keeps_nothing_belongs_nowhere(room: PostRoom) -> None:
    await aside(room.up, "--memory")

    assert not (room.state / "bus.json").exists()
