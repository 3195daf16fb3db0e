"""Who lets whom in, in two organisations of one post room, as people and programs do it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import PostRoom, running_room


@pytest.fixture(scope="module")
def house() -> Iterator[PostRoom]:
    """A post room with a second organisation, `acme`."""
    with running_room() as room:
        room.run("org", "create", "acme")
        yield room


class Caller:
    """Who calls the API of an organisation with a key of their own."""

    def __init__(self, room: PostRoom, org: str, made: dict[str, Any], key: str) -> None:
        self.uid, self.nick = made["uid"], made["nick"]
        self._base = room.server["url"] + ("" if org == "default" else f"/orgs/{org}")
        self._headers = {"Authorization": f"Bearer {key}"}

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
