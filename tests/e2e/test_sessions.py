"""Sessions in a person's terminal, across the death of the control plane."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import httpx2
import pytest

from tests.e2e.conftest import PostRoom, gone, until


def followed(room: PostRoom, after: int, number: int) -> list[tuple[int, str]]:
    """Sequence and text of the next messages to the sessions of the owner."""
    found: list[tuple[int, str]] = []
    with room.client() as client, closing(client.follow_sessions(after=after)) as events:
        for event in events:
            if event.kind == "mail":
                found.append((int(event.id), event.data["text"]))
            if len(found) == number:
                break
    return found


@pytest.mark.requirement("session-is-agent", "session-mail-told")
def test_sessions_their_keys_and_their_mail_outlive_a_killed_control_plane(room: PostRoom) -> None:
    room.up()
    with room.client() as client:
        app = client.register_session("claude", "one", "app")
        client.send("@app", "before")
    ((at, text),) = followed(room, 0, 1)
    assert text == "before"

    pids = room.server["pid"], room.server["nats_pid"]
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: all(map(gone, pids)))
    room.up()

    key = {"Authorization": f"Bearer {app['api_key']['key']}"}
    me = httpx2.get(f"{room.server['url']}/v1/me", headers=key, verify=False)
    assert me.json()["uid"] == app["uid"]
    with room.client() as client:
        client.send("@app", "after")
        assert followed(room, at, 1)[0][1] == "after"
        assert [text for _, text in followed(room, 0, 2)] == ["before", "after"]
        again = client.register_session("claude", "one", "other")
        assert (again["uid"], again["nick"], again["resumed"]) == (app["uid"], "app", True)
    refused = httpx2.get(f"{room.server['url']}/v1/me", headers=key, verify=False)
    assert refused.status_code == 401
