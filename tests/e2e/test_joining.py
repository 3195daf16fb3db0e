"""Joining as its people do it: one invites on a machine, another joins from a home that is empty, on a terminal."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

from tests.cli.terminal import Terminal
from tests.e2e.conftest import PostRoom
from tests.e2e.test_remote import Elsewhere, Place

HERE = Place("127.0.0.2")
CODE = re.compile(r"[a-z0-9]{5}(-[a-z0-9]{5}){3}")


@pytest.fixture(scope="module")
def open_room() -> Iterator[PostRoom]:
    """A post room with a certificate that no system knows."""
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.run("tls", "init", "--host", HERE.address)
        room.env["POSTROOM_LIMIT_STRANGERS"] = "30"
        room.up("--listen", f"{HERE.address}:0")
        yield room
        room.run("down")


def invited(room: PostRoom, *words: str) -> tuple[str, str]:
    """Link and code, from the two lines that are printed."""
    (_, link), (_, code) = (line.split() for line in room.run(*words).splitlines())
    assert CODE.fullmatch(code)
    return link, code


@pytest.mark.requirement("join-by-invite")
@pytest.mark.requirement("tls-beyond-loopback")
@pytest.mark.timeout(180)
def test_an_agent_and_a_person_of_others_join_and_write(open_room: PostRoom) -> None:
    room, chloe = open_room, Elsewhere(HERE, open_room.scratch / "chloe")
    owner = room.server["me"]["nick"]
    link, code = invited(room, "invite", "--expires", "2h")
    assert link.startswith(f"https://{HERE.address}:")
    assert "counts once, for 1 h" in room.stderr or "for 2 h" in room.stderr

    # Asked for the code at 80 columns, which shows no letter of it; the link names whom to trust.
    empty = partial(Terminal, HOME=str(chloe.home), XDG_CONFIG_HOME="", XDG_STATE_HOME="")
    with empty("join", link, "--name", "alice", lines=24) as terminal:
        terminal.read_until("code: ")
        terminal.type(f"{code}\n")
        assert terminal.ended() == 0, terminal.plain
        said = terminal.plain
    assert code not in said
    assert all(len(line) <= 80 for line in said.splitlines()), said
    assert f"you are @alice at {link.partition('/join')[0]}" in said
    assert "next: postroom --url alice inbox" in said

    chloe.run("--url", "alice", "send", f"@{owner}", "hello from outside")
    assert "hello from outside" in room.run("inbox")
    room.run("send", "@alice", "welcome")
    assert "welcome" in chloe.run("--url", "alice", "inbox")
    # It was the only use.
    again = chloe.run("join", link, "-", "--name", "bob", given=f"{code}\n", status=6)
    assert again == ""
    assert "nobody joins so" in chloe.stderr

    room.run("org", "create", "acme")
    link, code = invited(room, "--org", "acme", "invite", "--person", "--uses", "2")
    dora = Elsewhere(HERE, room.scratch / "dora")
    dora.run("join", link, code, "--name", "dora", "--email", "dora@example.org")
    assert dora.json("status")["me"]["nick"] == "dora"
    assert [one["nick"] for one in room.json("--org", "acme", "people", "list")["people"]]
    assert "dora" in room.run("--org", "acme", "people", "list")
    (invite,) = room.json("--org", "acme", "invite", "list")["invites"]
    assert (invite["uses"], invite["state"]) == (1, "valid")
    room.run("--org", "acme", "invite", "revoke", invite["id"])
    eve = Elsewhere(HERE, room.scratch / "eve")
    eve.run("join", link, "-", "--name", "eve", given=f"{code}\n", status=6)
    # Another organisation has no such invite.
    elsewhere = link.replace("/orgs/acme", "")
    eve.run("join", elsewhere, "-", "--name", "eve", given=f"{code}\n", status=6)


@pytest.mark.requirement("tls-beyond-loopback")
def test_a_link_with_another_authority_gets_no_code(open_room: PostRoom) -> None:
    link, code = invited(open_room, "invite")
    mallory = Elsewhere(HERE, open_room.scratch / "trusting")
    wrong = link.partition("#")[0] + "#sha256:" + "ab" * 32

    mallory.run("join", wrong, code, "--name", "carl", status=8)

    assert "somebody may sit in between" in mallory.stderr
    (invite, *_) = open_room.json("invite", "list")["invites"]
    assert (invite["uses"], invite["state"]) == (1, "valid")


@pytest.mark.requirement("join-limits")
@pytest.mark.requirement("join-once")
@pytest.mark.timeout(180)
def test_an_open_organisation_over_restarts_and_who_tries_too_often(open_room: PostRoom) -> None:
    room = open_room
    room.run("org", "create", "plaza")
    room.run("org", "set", "plaza", "--registration", "open")
    url = f"{room.server['url']}/orgs/plaza/v1"
    said = {"display_name": "alice", "key": "a secret of the joiner, and of nobody else"}

    first = httpx2.post(f"{url}/join", json=said).json()
    room.run("down")
    room.up("--listen", f"{HERE.address}:0")
    url = f"{room.server['url']}/orgs/plaza/v1"
    again = httpx2.post(f"{url}/join", json=said).json()

    assert (first["uid"], first["key"]["key"]) == (again["uid"], again["key"]["key"])
    assert re.fullmatch("alice-[0-9a-f]{4}", again["nick"])
    mine = {"Authorization": f"Bearer {again['key']['key']}"}
    agents = httpx2.get(f"{url}/agents", headers=mine).json()["agents"]
    assert [one["nick"] for one in agents] == [again["nick"]]

    for _ in range(40):
        refused = httpx2.post(f"{url}/join", json={"display_name": "x", "invite": "f" * 16})
        if refused.status_code == 429:
            break
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "again in" in refused.json()["remedy"]
    assert httpx2.get(f"{url}/me", headers=mine).status_code == 200
