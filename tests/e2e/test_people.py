"""People and their keys as they are used: commands, two starts, two organisations."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.e2e.conftest import DEADLINE, PostRoom
from tests.prefork import prefork


def called(room: PostRoom, key: str, path: str = "/v1/me", method: str = "GET") -> int:
    """The status of a call with that key."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.request(method, room.server["url"] + path, headers=headers).status_code


def as_ann(room: PostRoom, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of a person who has logged in, without the state folder."""
    return prefork().run(["--url", "ann", *words], room.env, None, DEADLINE)


@pytest.mark.requirement("key-scopes-demanded")
@pytest.mark.requirement("audit-acts-explained")
@pytest.mark.timeout(180)
def test_people_with_keys_over_two_starts_and_two_organisations(room: PostRoom) -> None:
    room.up()
    room.run("org", "create", "acme")
    file = room.state / "keys" / "operator.key"
    operator = room.server["token"]
    assert file.read_text().strip() == operator
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    ann = room.run("people", "add", "ann").strip()
    eve = room.run("--org", "acme", "people", "add", "eve", "--scope", "admin").strip()
    assert "shown this once" in room.stderr
    assert [called(room, ann), called(room, eve, "/orgs/acme/v1/me")] == [200, 200]
    # A key opens its own organisation and no other; the operator's opens all.
    assert [called(room, ann, "/orgs/acme/v1/me"), called(room, eve)] == [401, 401]
    assert called(room, operator, "/orgs/acme/v1/me") == 200
    # Who administers one organisation does not administer the installation.
    assert called(room, eve, "/orgs/acme/v1/shutdown", "POST") == 403
    assert called(room, eve, "/orgs/acme/v1/keys/operator/rotate", "POST") == 403
    assert called(room, eve, "/orgs/acme/v1/orgs") == 404
    assert called(room, eve, "/orgs/absent/v1/me") == 401

    _log_in(room, ann)
    assert as_ann(room, "send", "@" + room.server["me"]["nick"], "hello").returncode == 0
    assert "hello" in room.run("inbox")
    shown = as_ann(room, "status")
    assert (shown.returncode, "@ann" in shown.stdout) == (0, True), shown.stderr
    assert "workers: not shown to you" in shown.stdout
    refused = as_ann(room, "spawn", "x.toml")
    assert refused.returncode != 0
    replaced = as_ann(room, "keys", "rotate")
    assert replaced.returncode == 0, replaced.stderr
    assert as_ann(room, "inbox").returncode == 0
    assert [called(room, ann), called(room, replaced.stdout.strip())] == [401, 200]
    lines = room.run("audit", "--worker", "@ann").splitlines()
    assert any("@ann" in line and "/v1/messages" in line for line in lines)

    room.run("down")
    room.up()
    assert room.server["token"] == operator
    assert called(room, replaced.stdout.strip()) == 200

    new = room.run("keys", "rotate", "operator").strip()
    assert new != operator
    assert (room.server["token"], file.read_text().strip()) == (new, new)
    assert called(room, operator) == called(room, operator, "/orgs/acme/v1/me") == 401
    assert called(room, new, "/orgs/acme/v1/me") == 200
    (key,) = [each for each in room.json("keys", "list")["keys"] if each["agent"]["nick"] == "ann"]
    room.run("keys", "revoke", key["id"])
    assert called(room, replaced.stdout.strip()) == 401
    room.run("people", "remove", "ann")
    assert [one["nick"] for one in room.json("people", "list")["people"]] == [
        room.server["me"]["nick"]
    ]


def _log_in(room: PostRoom, key: str) -> None:
    file = Path(room.scratch) / "key"
    file.write_text(key)
    file.chmod(0o600)
    words = ["login", room.server["url"], "--name", "ann", "--key-file", str(file)]
    done = prefork().run(words, room.env, None, DEADLINE)
    assert done.returncode == 0, done.stderr
