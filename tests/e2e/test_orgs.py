"""Organisations in one post room: made, used, killed, broken and removed, by real processes."""

from __future__ import annotations

import json
import os
import secrets
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from postroom.client.http import Client
from postroom.errors import NotFound
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from tests.e2e.conftest import EXAMPLES, PostRoom, gone, until
from tests.identity.stage import Peer, Stage, heard, mint

ECHO = str(EXAMPLES / "echo.toml")

VERBS = (
    *("agents.resolve", "agents.list", "cards.find", "cards.get", "feed.history", "tasks.open"),
    *("tasks.get", "tasks.list", "tasks.changes", "tasks.choose", "tasks.cancel", "tasks.answer"),
)


def org(room: PostRoom, name: str) -> dict[str, Any]:
    (found,) = [entry for entry in room.json("org", "list")["orgs"] if entry["name"] == name]
    return found


def state_of(room: PostRoom, name: str) -> str:
    return org(room, name)["state"]


def nicks(room: PostRoom, name: str) -> list[str]:
    return [worker["nick"] for worker in room.json("--org", name, "status")["workers"]]


def kill(room: PostRoom) -> None:
    """SIGKILL of the control plane; returns when its server has ended, too."""
    server = room.server
    os.kill(server["pid"], signal.SIGKILL)
    until(lambda: gone(server["pid"]) and gone(server["nats_pid"]))


@pytest.mark.slow
@pytest.mark.requirement("org-no-subject-crosses")
@pytest.mark.timeout(120)
def test_workers_of_one_nick_in_two_organisations_are_two_and_come_back_both(
    room: PostRoom,
) -> None:
    room.up()
    room.run("org", "create", "acme")
    room.run("spawn", ECHO)
    room.run("--org", "acme", "spawn", ECHO)
    room.run("spawn", ECHO, "--org", "acme", "--name", "another")

    answer = room.run("send", "@echo", "hello", "--wait", "answered", "--org", "acme")

    assert "you said:" in answer
    room.run("send", "@another", "hello", status=4)
    assert nicks(room, "default") == ["echo"]
    assert nicks(room, "acme") == ["echo", "another"]
    assert not room.json("inbox", "--all")["messages"]
    uids = {
        w["uid"]
        for name in ("default", "acme")
        for w in room.json("--org", name, "status")["workers"]
    }
    assert len(uids) == 3
    assert org(room, "default")["me"]["uid"] != org(room, "acme")["me"]["uid"]
    assert {agent["org"] for agent in room.json("--org", "acme", "agents")["agents"]} == {"acme"}
    assert {path.name for path in (room.state / "orgs" / "acme" / "workers").iterdir()} <= uids
    assert "nothing was printed" not in room.run("--org", "acme", "logs", "another")

    kill(room)
    room.up()

    assert org(room, "acme")["counts"]["running"] == 2
    for name in ("default", "acme"):
        said = room.run("--org", name, "send", "@echo", "again", "--wait", "answered")
        assert "you said:" in said


@pytest.mark.requirement("org-no-subject-crosses")
def test_an_organisation_that_there_is_not_is_named_with_the_remedy_to_the_operator_alone(
    shared: PostRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.run("org", "create", "known")

    shared.run("--org", "nope", "status", status=4)

    assert "no organisation 'nope'" in shared.stderr
    assert "postroom org create" in shared.stderr
    shared.run("--org", "../keys", "status", status=2)
    monkeypatch.setitem(shared.env, "POSTROOM_ORG", "known")
    assert shared.json("status")["org"] == "known"
    assert shared.json("status", "--org", "default")["org"] == "default"
    for key in ({}, {"Authorization": "Bearer a2a_x_y"}):
        with httpx2.Client(base_url=shared.server["url"], headers=key) as stranger:
            answers = [
                stranger.request(method, path)
                for method, path in (
                    *(("GET", f"/orgs/{name}/v1/status") for name in ("known", "nope")),
                    ("GET", "/v1/orgs"),
                    ("POST", "/v1/orgs"),
                    ("DELETE", "/v1/orgs/known"),
                )
            ]
        assert {answer.status_code for answer in answers} == {401}
        assert answers[0].text == answers[1].text
    url, owner = shared.server["url"], {"Authorization": f"Bearer {shared.server['token']}"}
    person = {"nick": "maria", "scopes": ["read"]}
    made = httpx2.post(f"{url}/orgs/known/v1/people", json=person, headers=owner).json()
    hers = {"Authorization": f"Bearer {made['key']['key']}"}
    with httpx2.Client(base_url=url, headers=hers) as maria:
        assert maria.get("/orgs/known/v1/me").json()["org"] == "known"
        elsewhere = [maria.get(f"{path}/v1/me") for path in ("", "/orgs/nope")]
        assert {answer.status_code for answer in elsewhere} == {401}
        assert "'known'" in elsewhere[0].json()["detail"]
    with Client.at(shared.state, "nope") as client, pytest.raises(NotFound):
        client.status()


@pytest.mark.requirement("org-create-whole")
def test_of_two_that_make_one_organisation_one_is_told_that_it_is_there(shared: PostRoom) -> None:

    both = [shared.popen("org", "create", "twice", stderr=-1) for _ in range(2)]
    others = [shared.popen("org", "create", f"other-{n}") for n in range(2)]
    for process in (*both, *others):
        process.communicate(timeout=40)

    assert sorted(process.returncode for process in both) == [0, 5]
    assert [process.returncode for process in others] == [0, 0]
    names = [entry["name"] for entry in shared.json("org", "list")["orgs"]]
    assert {"twice", "default", "other-0", "other-1"} <= set(names)
    assert len(names) == len(set(names))
    shared.run("org", "create", "default", status=5)
    shared.run("org", "create", "Acme", status=2)


@pytest.mark.slow
@pytest.mark.requirement("org-create-whole")
@pytest.mark.timeout(120)
def test_after_a_kill_while_it_is_made_an_organisation_is_whole_or_absent(room: PostRoom) -> None:
    room.up()
    keys = room.state / "keys" / "trust.json"
    for name, reached in (
        ("at-once", lambda: True),
        ("at-keys", lambda: "at-keys" in keys.read_text()),
        ("at-database", (room.state / "orgs" / "at-database" / "projection.db").exists),
    ):
        making = room.popen("org", "create", name, stderr=-1)
        while not reached():
            assert making.poll() is None or making.returncode == 0
        kill(room)
        making.communicate(timeout=40)
        room.up()

        if name not in keys.read_text():
            assert name == "at-once"
            room.run("org", "create", name)
        assert state_of(room, name) == "open"
        room.run("--org", name, "spawn", ECHO)
        said = room.run("--org", name, "send", "@echo", "whole?", "--wait", "answered")
        assert "you said:" in said


@pytest.mark.requirement("org-create-whole")
@pytest.mark.slow
def test_an_organisation_that_cannot_be_opened_stops_no_other_and_is_tried_again(
    room: PostRoom,
) -> None:
    room.up()
    for name in ("acme", "zeta"):
        room.run("org", "create", name)
    room.run("down")
    database = room.state / "orgs" / "acme" / "projection.db"
    whole = database.read_bytes()
    database.write_bytes(b"no database at all" * 1000)

    room.up()

    assert state_of(room, "default") == state_of(room, "zeta") == "open"
    assert state_of(room, "acme") == "failed"
    assert org(room, "acme")["detail"]
    assert "acme" in " ".join(alert["text"] for alert in room.json("status")["alerts"])
    room.run("--org", "acme", "status", status=10)
    assert "not open" in room.stderr
    room.run("org", "create", "acme", status=5)

    database.write_bytes(whole)
    until(lambda: state_of(room, "acme") == "open")

    assert room.json("--org", "acme", "status")["org"] == "acme"


@pytest.mark.requirement("org-create-whole")
@pytest.mark.slow
def test_a_removed_organisation_is_gone_with_its_workers_and_its_name_begins_anew(
    room: PostRoom,
) -> None:
    room.up()
    room.run("org", "create", "acme")
    room.run("--org", "acme", "spawn", ECHO)
    room.run("--org", "acme", "send", "@echo", "a secret", "--wait", "answered")
    (worker,) = room.json("--org", "acme", "status")["workers"]

    room.run("org", "remove", "acme", status=2)
    assert "--yes" in room.stderr
    kept = room.json("org", "remove", "acme", "--yes")["folder"]

    assert gone(worker["pid"])
    assert (Path(kept) / "workers" / worker["uid"]).is_dir()
    room.run("--org", "acme", "status", status=4)
    room.run("org", "remove", "acme", "--yes", status=4)
    room.run("org", "remove", "default", "--yes", status=5)
    room.run("down")
    room.up()
    assert [entry["name"] for entry in room.json("org", "list")["orgs"]] == ["default"]

    room.run("org", "create", "acme")

    assert nicks(room, "acme") == []
    assert not room.json("--org", "acme", "inbox", "--all")["messages"]


@pytest.mark.requirement("org-no-subject-crosses")
def test_no_template_of_an_organisation_may_show_its_worker_the_keys_of_the_post_room(
    shared: PostRoom,
) -> None:
    shared.run("org", "create", "greedy")
    text = Path(ECHO).read_text() + "\n[compute]\nread_only = ['{folder}']\n"

    for number, folder in enumerate(
        (shared.state, shared.state / "keys", shared.state / "orgs" / "greedy")
    ):
        path = shared.template(text.replace("{folder}", str(folder)), f"greedy-{number}")
        shared.run("--org", "greedy", "spawn", path, status=2)
        assert "Postroom's own" in shared.stderr


# ── what agents ask the control plane ─────────────────────────────────────────────────────────────────────────


async def connected(room: PostRoom, org: str, uid: str, stack: AsyncExitStack) -> Peer:
    """A raw client with a valid credential of agent `uid`, on the running server."""
    trust = Trust.load_or_create(room.state / "keys").of(org)
    server = cast("Any", SimpleNamespace(url=room.server["nats_url"]))
    return await Stage(trust, server, stack).connect(mint(trust, uid, "demo"), uid)


@pytest.mark.anyio
@pytest.mark.requirement("org-no-subject-crosses")
async def test_the_control_plane_tells_no_agent_of_those_of_another_organisation(
    shared: PostRoom,
) -> None:
    shared.run("org", "create", "second")
    shared.run("spawn", ECHO)
    shared.run("--org", "second", "spawn", ECHO, "--name", "hidden")
    hidden = shared.json("--org", "second", "status")["workers"][0]["uid"]
    task = shared.json("--org", "second", "delegate", "@hidden", "a secret")["id"]
    own = shared.worker("echo")["uid"]
    stranger, no_task = secrets.token_hex(16), secrets.token_hex(16)

    async with AsyncExitStack() as stack:
        asking = await connected(shared, "default", own, stack)
        answers = await asking.subscribe(f"_I.{own}.ctl.>")

        async def told(verb: str, ref: str, task_id: str) -> str:
            body = {"ref": ref, "to": ref, "id": task_id, "task": task_id, "project": "demo"}
            body |= {"text": "x", "key": "k", "request": task_id, "runner": ref, "worker": ref}
            subject = subjects.ctl(own, *verb.split("."))
            reply = f"_I.{own}.ctl.{secrets.token_hex(8)}"
            await asking.publish(subject, json.dumps(body).encode(), reply)
            answer = (await heard(answers)).data.decode()
            return answer.replace(ref, "REF").replace(task_id, "TASK")

        for verb in VERBS:
            of_nobody = await told(verb, stranger, no_task)
            assert await told(verb, hidden, task) == of_nobody, verb
            assert hidden not in of_nobody
            by_nick = await told(verb, "hidden", task)
            assert by_nick == await told(verb, "nobody-at-all", no_task), verb
        assert "no request" in await told("no.verb", stranger, no_task)

        foreign = await connected(shared, "second", hidden, stack)
        mine = await foreign.subscribe(f"_I.{hidden}.ctl.>")
        await foreign.publish(
            subjects.ctl(hidden, "agents", "list"), b"{}", f"_I.{hidden}.ctl.{'0' * 16}"
        )
        listed = json.loads((await heard(mine)).data)["agents"]
        assert own not in [agent["uid"] for agent in listed]
        assert hidden in [agent["uid"] for agent in listed]
