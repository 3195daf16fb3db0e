"""`postroom join`: what it asks, what it keeps, and that a lost answer costs nothing."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.cli.root import run
from postroom.client import keychain
from tests.cli.conftest import Ended
from tests.client.standin import Standin, problem

INVITE = "8f2c1a90b7d3e456"
CODE = "k7m2q-x9c4t-b6h3n-p8d5w"


class Guest:
    """Somebody with an empty home."""

    def __init__(self, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = home / "config" / "postroom"
        self._capfd = capfd

    def run(self, *words: str, status: int = 0) -> Ended:
        code = run(list(words))
        said = self._capfd.readouterr()
        assert code == status, said
        return Ended(code, said.out, said.err)

    def logins(self) -> dict[str, Any]:
        return {
            one["name"]: one
            for one in json.loads(self.run("login", "--list", "--json").out)["logins"]
        }


@pytest.fixture
def guest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Guest:
    for variable in ("POSTROOM_URL", "POSTROOM_STATE", "POSTROOM_CA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(keychain, "_keyring", lambda: None)
    monkeypatch.setattr("postroom_a2a.retry.RetryPolicy.delay", lambda *_: 0.0)
    return Guest(tmp_path, capfd)


@pytest.fixture
def room() -> Iterator[Standin]:
    server = Standin()
    yield server
    server.close()


def joined(nick: str = "alice", kind: str = "external", **more: Any) -> dict[str, Any]:
    uid = "c" * 32
    key = {
        "id": "d" * 32,
        "agent": {"uid": uid, "nick": nick, "kind": kind},
        "name": "",
        "scopes": ["read", "send", "task"],
        "state": "valid",
        "made_by": None,
        "key": f"a2a_{uid}_{'e' * 64}",
        **dict.fromkeys(("created_at", "expires_at", "used_at", "revoked_at")),
    }
    about = {"uid": uid, "nick": nick, "org": "default", "kind": kind, "joined": "invite"}
    return {**about, "key": key, **more}


def asked(room: Standin) -> list[dict[str, Any]]:
    return [request.body for request in room.calls("POST /v1/join")]


@pytest.mark.requirement("join-once")
def test_after_a_lost_answer_the_same_command_is_the_same_joiner(
    guest: Guest, room: Standin
) -> None:
    link = f"{room.url}/join/{INVITE}"
    room.answer("POST /v1/join", cut=True)

    lost = guest.run("join", link, CODE, "--name", "alice", status=9)

    assert "the same command again" in lost.err
    room._answers.clear()
    room.answer("POST /v1/join", joined(), status=201)
    done = guest.run("join", link, CODE, "--name", "alice")

    bodies = asked(room)
    assert len(bodies) > 2
    assert len({body["key"] for body in bodies}) == 1
    assert len(bodies[0]["key"]) == 32
    assert bodies[-1]["invite"] == INVITE
    assert "you are @alice" in done.out
    # What is kept is for this user alone, and the join is over.
    for name in ("logins.json", "joining.json"):
        assert stat.S_IMODE((guest.folder / name).stat().st_mode) == 0o600
    assert json.loads((guest.folder / "joining.json").read_text()) == {}
    guest.run("join", link, CODE, "--name", "alice")
    assert asked(room)[-1]["key"] != bodies[0]["key"]


def test_a_refusal_ends_the_join(guest: Guest, room: Standin) -> None:
    refused = problem("not-invited", "nobody joins so", "ask for another")
    room.answer("POST /v1/join", refused, status=403)

    said = guest.run("join", f"{room.url}/join/{INVITE}", "wrong", "--name", "alice", status=6)

    assert "nobody joins so" in said.err
    assert json.loads((guest.folder / "joining.json").read_text()) == {}
    assert not (guest.folder / "logins.json").exists()


def test_the_key_of_an_agent_takes_the_place_of_no_other_login(guest: Guest, room: Standin) -> None:
    room.answer("POST /v1/join", joined(), status=201)
    room.answer("POST /orgs/acme/v1/join", joined(org="acme"), status=201)
    for place in (f"/join/{INVITE}", f"/orgs/acme/join/{INVITE}"):
        guest.run("join", room.url + place, CODE, "--name", "alice")

    logins = guest.logins()

    assert {name: login["org"] for name, login in logins.items()} == {
        "alice": "",
        "alice-2": "acme",
    }
    assert not any(login["default"] for login in logins.values())
    room.answer("POST /v1/join", joined("dora", "human"), status=201)
    room._answers["POST", "/v1/join"].popleft()
    said = guest.run("join", f"{room.url}/join/{INVITE}", CODE, "--name", "dora")
    assert "commands go there from now on" in said.out
    assert guest.logins()["127-0-0-1"]["default"]


@pytest.mark.parametrize(
    "link",
    [
        "http://far.example/join/8f2c1a90b7d3e456",
        "https://x/y",
        "x",
        "https://x/join/zz",
        "https://x?y=1",
    ],
)
def test_what_is_no_link_of_an_invite_is_asked_nothing(guest: Guest, link: str) -> None:
    said = guest.run("join", link, CODE, "--name", "alice", status=2)

    assert said.err.startswith(("postroom: ", "http"))
    assert not guest.folder.exists()
