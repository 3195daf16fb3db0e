"""Who lets whom in, in two organisations of one post room, as people and programs do it."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import PostRoom, running_room, until


@pytest.fixture(scope="module")
def house() -> Iterator[PostRoom]:
    """A post room with a second organisation, `acme`."""
    with running_room(POSTROOM_LIMIT_PAIR="100000") as room:
        room.run("org", "create", "acme")
        yield room


class Caller:
    """Who calls the API of an organisation with a key of their own."""

    def __init__(self, room: PostRoom, org: str, made: dict[str, Any], key: str) -> None:
        self.uid, self.nick, self.key = made["uid"], made["nick"], key
        self._org = org
        self.moved(room)
        self._headers = {"Authorization": f"Bearer {key}"}

    def moved(self, room: PostRoom) -> None:
        """The post room has another address now."""
        self._base = room.server["url"] + ("" if self._org == "default" else f"/orgs/{self._org}")

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self._base, headers=self._headers)

    def ask(self, method: str, path: str, **body: Any) -> httpx2.Response:
        given = body if method in {"POST", "PUT"} else None
        return httpx2.request(method, self._base + path, headers=self._headers, json=given)

    def told(self, method: str, path: str, **body: Any) -> Any:
        answer = self.ask(method, path, **body)
        assert answer.status_code < 300, answer.text
        return answer.json()


def program(room: PostRoom, org: str = "default", *scopes: str) -> Caller:
    """An external agent with a nick of its own."""
    nick = f"p-{secrets.token_hex(4)}"
    given = [word for scope in scopes for word in ("--scope", scope)]
    made = room.json("--org", org, "agents", "add", nick, "--external", *given)
    return Caller(room, org, made, made["key"]["key"])


def person(room: PostRoom, org: str = "default", *scopes: str) -> Caller:
    nick = f"h-{secrets.token_hex(4)}"
    given = [word for scope in scopes for word in ("--scope", scope)]
    made = room.json("--org", org, "people", "add", nick, *given)
    return Caller(room, org, made["key"]["agent"], made["key"]["key"])


def grants(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    return caller.told("GET", f"/v1/grants{query}")["grants"]


@pytest.mark.requirement("grant-given-listed")
def test_a_person_lets_in_an_agent_of_another_organisation_and_both_see_it(house: PostRoom) -> None:
    chloe, thomas = person(house), program(house, "acme")

    made = chloe.told("POST", "/v1/grants", grantee=f"@{thomas.nick}.acme", expires_in=3600)

    assert (made["state"], made["scopes"]) == ("valid", ["message"])
    assert made["grantee"] == {"uid": "", "nick": f"{thomas.nick}.acme", "kind": "unknown"}
    assert [one["id"] for one in grants(chloe)] == [made["id"]]
    (seen,) = grants(thomas)
    assert seen["granter"]["nick"] == f"{chloe.nick}.default"
    assert seen["grantee"]["nick"] == thomas.nick
    assert thomas.ask("DELETE", f"/v1/grants/{made['id']}").status_code == 404

    ended = chloe.told("DELETE", f"/v1/grants/@{thomas.nick}.acme")

    assert ended["state"] == "revoked"
    assert grants(chloe) == grants(thomas) == []
    (kept,) = grants(thomas, "?ended=true")
    assert kept["state"] == "revoked"


@pytest.mark.requirement("grant-tells-nothing")
@pytest.mark.parametrize("form", ["address", "uid"])
def test_letting_in_and_asking_tells_nobody_whether_there_is_such_an_agent(
    house: PostRoom, form: str
) -> None:
    chloe, there = person(house), program(house, "acme")
    named = {"address": f"@{there.nick}.acme", "uid": there.uid}[form]
    absent = {"address": f"@{there.nick}-x.acme", "uid": secrets.token_hex(16)}[form]
    nowhere = {"address": f"@{there.nick}.nowhere", "uid": secrets.token_hex(16)}[form]

    def said(method: str, path: str, ref: str, **body: Any) -> tuple[int, Any]:
        answer = chloe.ask(method, path, **body)
        found = json.loads(answer.text.replace(ref.removeprefix("@"), "REF"))
        for own in ("id", "made_at", "ended_at"):
            found.pop(own, None)
        return answer.status_code, found

    given = [said("POST", "/v1/grants", ref, grantee=ref) for ref in (named, absent, nowhere)]
    asked = [
        said("POST", "/v1/grants/requests", ref, granter=ref) for ref in (named, absent, nowhere)
    ]
    again = [said("POST", "/v1/grants", ref, grantee=ref) for ref in (named, absent, nowhere)]
    listed = grants(chloe)
    ended = [said("DELETE", f"/v1/grants/{ref}", ref) for ref in (named, absent, nowhere)]

    for answers in (given, asked, again, ended):
        assert answers[0] == answers[1] == answers[2]
        assert answers[0][0] in {200, 201}
    assert len(listed) == 3
    assert {one["grantee"]["kind"] for one in listed} == {"unknown"}
    assert chloe.told("GET", "/v1/grants/requests?answered=true")["requests"] == []


@pytest.mark.requirement("grant-asked-answered-once")
def test_who_asks_to_be_let_in_is_one_request_and_the_first_answer_counts(house: PostRoom) -> None:
    chloe, thomas = person(house), program(house, "acme")
    for reason in ("dinner\x1b[31m\non friday", "dinner on saturday"):
        thomas.told("POST", "/v1/grants/requests", granter=chloe.uid, reason=reason)

    (request,) = chloe.told("GET", "/v1/grants/requests")["requests"]

    assert request["reason"] == "dinner on saturday"
    assert request["grantee"] == {
        "uid": thomas.uid,
        "nick": f"{thomas.nick}.acme",
        "kind": "external",
    }
    assert thomas.told("GET", "/v1/grants/requests?answered=true")["requests"] == []
    stranger = program(house)
    assert (
        stranger.ask("POST", f"/v1/grants/requests/{request['id']}", decision="allowed").status_code
        == 404
    )

    done = chloe.told(
        "POST", f"/v1/grants/requests/{request['id']}", decision="allowed", scopes=["card"]
    )
    late = chloe.ask("POST", f"/v1/grants/requests/{request['id']}", decision="denied")

    assert (done["state"], done["answered_by"]["nick"]) == ("allowed", chloe.nick)
    assert late.status_code == 409
    assert f"allowed by @{chloe.nick}" in late.json()["detail"]
    (grant,) = grants(chloe)
    assert (grant["grantee"]["nick"], grant["scopes"]) == (f"{thomas.nick}.acme", ["card"])


@pytest.mark.requirement("grant-asked-answered-once")
def test_who_was_denied_asks_in_vain_for_a_while_and_is_answered_the_same(house: PostRoom) -> None:
    chloe, thomas = person(house), program(house, "acme")
    first = thomas.told("POST", "/v1/grants/requests", granter=f"@{chloe.nick}.default")
    (request,) = chloe.told("GET", "/v1/grants/requests")["requests"]
    chloe.told("POST", f"/v1/grants/requests/{request['id']}", decision="denied")

    again = thomas.told("POST", "/v1/grants/requests", granter=f"@{chloe.nick}.default")

    assert again == first
    assert chloe.told("GET", "/v1/grants/requests")["requests"] == []
    assert grants(thomas, "?ended=true") == []


@pytest.mark.requirement("grant-own-right")
def test_a_program_lets_in_with_the_scope_grant_alone_and_takes_back_without(
    house: PostRoom,
) -> None:
    plain, lets = program(house), program(house, "default", "read", "send", "grant")
    other = secrets.token_hex(16)

    assert plain.ask("POST", "/v1/grants", grantee=other).status_code == 202  # its owner is asked
    assert grants(plain) == []
    assert lets.ask("POST", "/v1/grants", grantee=other, granter=plain.nick).status_code == 403
    made = lets.told("POST", "/v1/grants", grantee=other, scopes=["task", "message"])
    assert made["scopes"] == ["message", "task"]
    house.run("grants", "allow", other, "--to", f"@{plain.nick}", "--scope", "message,card")
    (given,) = grants(plain)
    assert given["scopes"] == ["message", "card"]

    assert plain.told("DELETE", f"/v1/grants/{given['id'][:8]}")["state"] == "revoked"
    assert plain.told("PUT", "/v1/grants/only", grants_only=True)["grants_only"] is True
    assert plain.ask("PUT", "/v1/grants/only", grants_only=False).status_code == 202
    assert plain.told("GET", "/v1/grants/only")["grants_only"] is True


def test_the_commands_let_in_list_ask_answer_and_take_back(house: PostRoom) -> None:
    thomas = program(house, "acme")
    me = house.server["me"]["nick"]

    said = house.run("grants", "allow", f"@{thomas.nick}.acme", "--until", "30d")
    assert f"@{thomas.nick}.acme may reach @{me} for message, until 20" in said
    assert f"@{thomas.nick}.acme" in house.run("grants", "list")
    assert "asked @nobody.acme, if there is one" in house.run("grants", "ask", "@nobody.acme")
    house.run("grants", "allow", "@nobody-here", status=4)
    house.run("grants", "allow", "@x", "--scope", "everything", status=2)
    house.run("grants", "allow", "@x y.acme", status=2)
    house.run("grants", "revoke", f"@{thomas.nick}.acme")
    assert f"@{thomas.nick}.acme" not in house.run("grants", "list")
    assert "revoked" in house.run("grants", "list", "--all")

    thomas.told("POST", "/v1/grants/requests", granter=f"@{me}.default", reason="tea")
    (request,) = house.json("grants", "requests")["requests"]
    assert "tea" in house.run("grants", "requests")
    assert "allowed" in house.run("grants", "answer", request["id"][:8], "allow")
    house.run("grants", "answer", request["id"][:8], "deny", status=5)
    assert f"@{thomas.nick}.acme" in house.run("grants", "list")

    assert "by those alone" in house.run("grants", "only", "on")
    assert house.json("grants", "only")["grants_only"] is True
    assert "by all of its organisation" in house.run("grants", "only", "off")


# ── agents that are reached by grants alone ─────────────────────────────────────────────────────────────

# Runs what lies in the workspace as `<name>.call`; its output goes to `<name>.out`, its status to `<name>.code`.
TYPIST = """
import json, pathlib, subprocess, sys, threading

def watch():
    while True:
        for found in pathlib.Path(".").glob("*.call"):
            words = json.loads(found.read_text())
            found.unlink()
            done = subprocess.run(["postroom-agent", *words], capture_output=True, text=True)
            pathlib.Path(found.stem + ".out").write_text(done.stdout + done.stderr)
            pathlib.Path(found.stem + ".part").write_text(str(done.returncode))
            pathlib.Path(found.stem + ".part").rename(found.stem + ".code")
        threading.Event().wait(0.02)

threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin:
    if json.loads(line)["type"] == "stop":
        break
"""

TEMPLATE = """
[worker]
name = "{name}"
[workstation]
command = ["python3", "/opt/agent/{name}.py"]
files = ["{name}.py"]
"""


class Typist:
    """A worker that types what it is told to."""

    def __init__(self, room: PostRoom) -> None:
        self.nick = f"w-{secrets.token_hex(4)}"
        text = TEMPLATE.format(name=self.nick)
        room.run("spawn", room.template(text, self.nick, **{self.nick: TYPIST}))
        self.uid = room.worker(self.nick)["uid"]
        self.folder = room.state / "workers" / self.uid / "workspace"

    def types(self, *words: str) -> tuple[int, str]:
        """Exit status and output of `postroom-agent` with these words."""
        name = secrets.token_hex(4)
        part = self.folder / f"{name}.part"
        part.write_text(json.dumps(words))
        part.rename(self.folder / f"{name}.call")
        until((self.folder / f"{name}.code").exists)
        code = int((self.folder / f"{name}.code").read_text())
        return code, (self.folder / f"{name}.out").read_text()


def texts(caller: Caller) -> list[str]:
    found = caller.told("GET", "/v1/inbox?unread=false")["messages"]
    return [message["text"] for message in found]


@pytest.mark.requirement("grant-only-everywhere")
def test_who_is_reached_by_grants_alone_gets_nothing_else_from_programs_and_workers(
    house: PostRoom,
) -> None:
    closed, other, worker = person(house), program(house), Typist(house)
    closed.told("PUT", "/v1/grants/only", grants_only=True)

    refused = other.ask("POST", "/v1/messages", to=f"@{closed.nick}", text="let me in")
    code, said = worker.types("send", f"@{closed.nick}", "me too")

    assert (refused.status_code, refused.json()["code"]) == (403, "not-let-in")
    assert code != 0
    assert "has not let you in" in said
    closed.told("POST", "/v1/grants", grantee=f"@{worker.nick}")
    assert worker.types("send", f"@{closed.nick}", "now")[0] == 0
    until(lambda: texts(closed) == ["now"])
    closed.told("DELETE", f"/v1/grants/@{worker.nick}")
    assert worker.types("send", f"@{closed.nick}", "again")[0] != 0

    # What it has asked it is told, once.
    closed.told("POST", "/v1/messages", to=f"@{worker.nick}", text="are you there?")
    until(lambda: worker.types("send", f"@{closed.nick}", "I am")[0] == 0)
    assert worker.types("send", f"@{closed.nick}", "and more")[0] != 0
    until(lambda: texts(closed) == ["now", "I am"])

    # Nor is it given a task, or called, by programs and by workers.
    second = Typist(house)
    house.run("grants", "only", "on", f"@{second.nick}")
    task = other.ask("POST", "/v1/tasks", to=f"@{second.nick}", text="do it")
    assert (task.status_code, task.json()["code"]) == (403, "not-let-in")
    assert worker.types("delegate", f"@{second.nick}", "do it")[0] != 0
    assert "nobody serves" in worker.types("call", f"@{second.nick}", "do it")[1]
    assert not house.json("task", "list", "--worker", f"@{second.nick}")["tasks"]

    closed.told("PUT", "/v1/grants/only", grants_only=False)
    assert worker.types("send", f"@{closed.nick}", "open again")[0] == 0
    other.told("POST", "/v1/messages", to=f"@{closed.nick}", text="me too")


@pytest.mark.requirement("grant-only-everywhere")
def test_an_organisation_says_it_for_all_of_its_agents_over_a_restart(room: PostRoom) -> None:
    room.up()
    asked, asking = person(room), program(room)
    admitted = room.json("org", "set", "default", "--grants-only", "on")
    assert admitted == {"registration": "invite", "grants_only": True}
    asked.told("POST", "/v1/grants", grantee=f"@{asking.nick}")
    room.run("down")
    room.up()
    for one in (asked, asking):
        one.moved(room)

    asking.told("POST", "/v1/messages", to=f"@{asked.nick}", text="I am let in")

    refused = asked.ask("POST", "/v1/messages", to=f"@{asking.nick}", text="I am not")
    assert (refused.status_code, refused.json()["code"]) == (403, "not-let-in")
    assert asked.told("GET", "/v1/grants/only")["everybody"] is True
    room.run("org", "set", "default", "--grants-only", "off", "--registration", "closed")
    asked.told("POST", "/v1/messages", to=f"@{asking.nick}", text="now I am")
    assert room.json("org", "set", "default") == {"registration": "closed", "grants_only": False}


@pytest.mark.requirement("grant-revoke-counts")
def test_of_a_thousand_sends_none_is_stored_behind_a_revoke_that_has_returned(
    house: PostRoom,
) -> None:
    chloe, thomas = person(house), program(house, "acme")
    chloe.told("POST", "/v1/grants", grantee=thomas.uid)
    revoked = threading.Event()
    counts: list[tuple[bool, int]] = []

    def send(count: int) -> None:
        with thomas.client() as client:
            for _ in range(count):
                late = revoked.is_set()
                answer = client.post(
                    "/v1/messages", json={"to": f"@{chloe.nick}.default", "text": "x"}
                )
                counts.append((late, answer.status_code))

    with ThreadPoolExecutor(8) as pool:
        sending = [pool.submit(send, 125) for _ in range(8)]
        until(lambda: len(counts) > 100)
        chloe.told("DELETE", f"/v1/grants/{thomas.uid}")
        revoked.set()
        for each in sending:
            each.result()

    assert len(counts) == 1000
    assert {status for late, status in counts if late} == {403}
    accepted = sum(status in {200, 201} for _, status in counts)
    assert accepted + sum(status == 403 for _, status in counts) == 1000
    until(lambda: chloe.told("GET", "/v1/status")["inbox"] == accepted)


# ── what becomes of grants ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("grant-ends-with-its-people")
def test_grants_end_with_who_gave_them_and_an_owner_takes_theirs_along(house: PostRoom) -> None:
    chloe, maria, bob, thomas = person(house), person(house), program(house), program(house, "acme")
    house.run("agents", "give", f"@{bob.nick}", f"@{chloe.nick}")
    own = chloe.told("POST", "/v1/grants", grantee=thomas.uid)
    of_bob = chloe.told("POST", "/v1/grants", grantee=thomas.uid, granter=bob.nick)
    to_bob = maria.told("POST", "/v1/grants", grantee=f"@{bob.nick}")
    sent = thomas.ask("POST", "/v1/messages", to=f"@{bob.nick}.default", text="hello")
    assert sent.status_code < 300, sent.text
    assert {one["id"] for one in grants(chloe)} == {own["id"], of_bob["id"], to_bob["id"]}
    assert maria.ask("DELETE", f"/v1/grants/{of_bob['id']}").status_code == 404

    house.run("agents", "give", f"@{bob.nick}", f"@{maria.nick}")

    assert [one["id"] for one in grants(chloe)] == [own["id"]]
    refused = thomas.ask("POST", "/v1/messages", to=f"@{bob.nick}.default", text="hello")
    assert (refused.status_code, refused.json()["code"]) == (403, "not-let-in")
    house.run("people", "remove", chloe.nick)
    assert grants(thomas) == []
    house.run("agents", "remove", bob.nick)
    assert grants(maria) == []
    (ended,) = grants(maria, "?ended=true")
    assert (ended["id"], ended["state"]) == (to_bob["id"], "revoked")


@pytest.mark.requirement("grant-given-listed")
def test_status_shows_both_sides_what_has_ended_and_who_asks(house: PostRoom) -> None:
    thomas, me = program(house, "acme"), house.server["me"]["nick"]
    thomas.told("POST", "/v1/grants/requests", granter=f"@{me}.default", reason="tea")

    assert f"asks to be let in: @{thomas.nick}.acme by @{me}" in house.run("status")
    (asked,) = [
        each for each in house.json("status")["asking"] if each["grantee"]["uid"] == thomas.uid
    ]
    house.run("grants", "answer", asked["id"], "allow")
    house.run("grants", "revoke", f"@{thomas.nick}.acme")

    assert f"@{thomas.nick}.acme is let in no more by @{me} (revoked" in house.run("status")
    (seen,) = thomas.told("GET", "/v1/status")["grants"]
    assert (seen["state"], seen["granter"]["nick"]) == ("revoked", f"{me}.default")
