"""Joining over the HTTP API: by an invite and its code, or where an organisation is open; what nobody learns there."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from postroom.directory.joining import Joiner
from postroom.errors import NotInvited
from postroom.protocol.audit import API
from postroom.protocol.invites import link_of
from postroom.protocol.limits import MAX_CODE_TRIES
from postroom.store.grants import Admission
from postroom.store.schema import invites
from tests.control.conforming import contract
from tests.control.taskroom import SECONDS, TaskRoom, task_room
from tests.control.test_keys import acts, bearer

pytestmark = pytest.mark.anyio

KEY = "k" * 40
_EVERY_INVITE = select(invites)


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room"), limit_strangers=10_000) as room:
        yield room


@pytest.fixture
async def anyone(shared: TaskRoom) -> AsyncGenerator[httpx2.AsyncClient]:
    """Somebody without a key."""
    async with httpx2.AsyncClient(
        base_url=f"http://{shared.site.host}",
        timeout=SECONDS,
        event_hooks={"response": [contract().hold]},
        verify=False,
    ) as api:
        yield api


@asynccontextmanager
async def registration(room: TaskRoom, way: str) -> AsyncGenerator[None]:
    """How agents come in meanwhile."""
    await room.parts.database.write(lambda store: store.grants.admit(Admission(way)))
    try:
        yield
    finally:
        await room.parts.database.write(lambda store: store.grants.admit(Admission()))


async def invited(room: TaskRoom, **more: Any) -> dict[str, str]:
    """Invite and code as a joiner gives them."""
    made = await room.api.post("/v1/invites", json=more)
    assert made.status_code == 201, made.text
    said = made.json()
    assert link_of(said["link"]).invite == said["id"]
    return {"invite": said["id"], "code": said["code"]}


async def joined(api: httpx2.AsyncClient, name: str, **said: Any) -> httpx2.Response:
    return await api.post("/v1/join", json={"display_name": name, **said})


def names(answer: httpx2.Response) -> list[str]:
    return [agent["nick"] for agent in answer.json()["agents"]]


# ── by an invite ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("join-by-invite")
async def test_who_has_link_and_code_joins_with_an_address_and_a_key_of_its_own(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    invite = await invited(shared, scopes=["read", "send"])
    card = {
        "description": "Sorts the mail.",
        "skills": [{"id": "sort", "name": "sort", "description": "Sorts.", "tags": ["mail"]}],
    }

    done = await joined(anyone, "@Chloe Mail", owner_email="c@example.org", card=card, **invite)

    assert done.status_code == 201, done.text
    who = done.json()
    assert (who["nick"], who["kind"], who["joined"]) == ("chloe-mail", "external", "invite")
    async with bearer(shared, who["key"]["key"]) as mine:
        me = (await mine.get("/v1/me")).json()
        assert (me["uid"], me["scopes"]) == (who["uid"], ["read", "send"])
        sent = await mine.post("/v1/messages", json={"to": "@maria", "text": "I am here"})
        assert sent.status_code == 201
        assert "unverified_email" not in (await mine.get("/v1/agents/chloe-mail")).json()
    shown = (await shared.api.get("/v1/agents/chloe-mail")).json()
    assert shown["unverified_email"] == "c@example.org"
    assert shown["card"]["description"] == "Sorts the mail."
    act = next(one for one in acts(shared) if one.url == "/v1/join")
    assert (act.by, act.principal, act.nick, act.status) == (API, who["uid"], "chloe-mail", 201)


@pytest.mark.requirement("join-by-invite")
async def test_a_person_joins_as_a_person_and_gets_no_reserved_name(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    invite = await invited(shared, kind="human", uses=2)

    for name in ("operator", "0perator", "human", "sy5tem", "hurnan"):
        assert (await joined(anyone, name, **invite)).status_code == 422, name
    done = await joined(anyone, "dora", **invite)

    assert done.json()["kind"] == "human"
    people = (await shared.api.get("/v1/people")).json()["people"]
    assert "dora" in [person["nick"] for person in people]


@pytest.mark.requirement("join-secrets-kept")
async def test_the_code_is_kept_nowhere_and_shown_once(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    invite = await invited(shared)
    secret = "owner-of-" + KEY
    done = await joined(anyone, "secretive", key=secret, **invite)
    key = done.json()["key"]["key"]

    listed = await shared.api.get("/v1/invites")
    assert invite["code"] not in listed.text

    def stored(store: Any) -> str:
        return repr(store.session.rows(_EVERY_INVITE)) + repr(store.keys.listed())

    kept = await shared.parts.database.read(stored)
    assert hashlib.sha256(invite["code"].encode()).hexdigest() in kept
    audit = shared.parts.installation.audit.files.path.read_text()
    for hidden in (invite["code"], key, secret):
        assert hidden not in kept
        assert hidden not in audit


@pytest.mark.requirement("join-refused-alike")
async def test_whatever_is_wrong_with_an_invite_the_answer_and_the_work_are_the_same(
    shared: TaskRoom, anyone: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = await invited(shared, uses=5)
    used, revoked, expired = [await invited(shared) for _ in range(3)]
    assert (await joined(anyone, "first", **used)).status_code == 201
    assert (await shared.api.delete(f"/v1/invites/{revoked['invite']}")).json()[
        "state"
    ] == "revoked"
    gone = await person_invite(shared)
    cases = {
        "unknown": {"invite": "f" * 16, "code": good["code"]},
        "of no form": {"invite": "../x", "code": "\u202e"},
        "wrong code": {"invite": good["invite"], "code": "wrong"},
        "no code": {"invite": good["invite"]},
        "code of another": {"invite": good["invite"], "code": used["code"]},
        "used up": used,
        "revoked": revoked,
        "its maker has left": gone,
        "none": {},
        "a code alone": {"code": good["code"]},
    }
    said = {}
    for what, case in cases.items():
        # The name of somebody who is there, and one of nobody.
        for name in ("maria", "nobody-yet"):
            answer = await joined(anyone, name, **case)
            assert answer.status_code == 403, (what, answer.text)
            said[what, name] = answer.text
    later = time.time() + 8 * 86400.0
    monkeypatch.setattr(shared.parts.joining, "_clock", lambda: later)
    said["expired", "late"] = (await joined(anyone, "late", **expired)).text
    monkeypatch.undo()
    async with registration(shared, "closed"):
        said["closed", "shut"] = (await joined(anyone, "shut", **good)).text

    assert len(set(said.values())) == 1, said
    asked = {what: await statements(shared, case) for what, case in cases.items()}
    assert len({tuple(each) for each in asked.values()}) == 1, asked
    assert (await joined(anyone, "second", **good)).status_code == 201


async def person_invite(room: TaskRoom) -> dict[str, str]:
    """An invite of somebody who administers no more."""
    made = await room.api.post("/v1/people", json={"nick": "leaver", "scopes": ["admin"]})
    async with bearer(room, made.json()["key"]["key"]) as leaver:
        said = (await leaver.post("/v1/invites", json={})).json()
    await room.api.delete("/v1/people/leaver")
    return {"invite": said["id"], "code": said["code"]}


async def statements(room: TaskRoom, case: dict[str, str]) -> list[str]:
    """What is asked of the database for a join that is refused."""
    said: list[str] = []
    database = room.parts.database
    point = database.point

    async def watched(work: Any) -> Any:
        def does(store: Any) -> Any:
            before = store.session.driver

            class Driver:
                def execute(self, sql: str, values: object = ()) -> object:
                    said.append(sql)
                    return before.execute(sql, values)

            store.session.driver = Driver()
            try:
                return work(store)
            finally:
                store.session.driver = before

        return await point(does)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(database), "point", lambda _, work: watched(work))
        with pytest.raises(NotInvited):
            await room.parts.joining.join(
                Joiner("somebody", case.get("invite", ""), case.get("code", ""))
            )
    return said


@pytest.mark.requirement("join-refused-alike")
async def test_after_some_wrong_codes_the_right_one_counts_no_more(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    invite = await invited(shared, uses=3)
    for number in range(MAX_CODE_TRIES):
        wrong = await joined(anyone, "guesser", invite=invite["invite"], code=f"guess-{number}")
        assert wrong.status_code == 403

    right = await joined(anyone, "guesser", **invite)

    assert right.text == wrong.text
    listed = (await shared.api.get("/v1/invites")).json()["invites"]
    assert next(one for one in listed if one["id"] == invite["invite"])["state"] == "tried"


@pytest.mark.requirement("join-by-invite")
async def test_of_many_at_once_as_many_join_as_there_are_uses(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    invite = await invited(shared, uses=3)

    done = await asyncio.gather(*(joined(anyone, f"racer-{n}x", **invite) for n in range(12)))

    assert sorted(each.status_code for each in done) == [201] * 3 + [403] * 9


@pytest.mark.requirement("join-once")
async def test_who_asks_again_is_the_same_with_the_same_key_and_takes_no_further_use(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    invite = await invited(shared, uses=2)

    at_once = await asyncio.gather(*(joined(anyone, "twice", key=KEY, **invite) for _ in range(10)))
    again = await joined(anyone, "twice", key=KEY, **invite)

    assert {each.status_code for each in (*at_once, again)} == {201}
    assert len({each.json()["uid"] for each in (*at_once, again)}) == 1
    assert len({each.json()["key"]["key"] for each in (*at_once, again)}) == 1
    other = await joined(anyone, "twice-2", key=KEY[::-1] + "x", **invite)
    assert other.status_code == 201
    assert (await joined(anyone, "third", **invite)).status_code == 403
    # What is used up counts on for who has joined by it.
    assert (await joined(anyone, "twice", key=KEY, **invite)).json()["uid"] == again.json()["uid"]

    uid = again.json()["uid"]
    await shared.api.delete(f"/v1/keys/{again.json()['key']['id']}")
    revoked = await joined(anyone, "twice", key=KEY, **invite)
    assert revoked.status_code == 409
    assert uid not in revoked.text


@pytest.mark.requirement("join-once")
@pytest.mark.parametrize("key", ["1", "retry", "x" * 31])
async def test_a_key_that_could_be_guessed_is_not_taken(
    shared: TaskRoom, anyone: httpx2.AsyncClient, key: str
) -> None:
    async with registration(shared, "open"):
        refused = await joined(anyone, "weak", key=key)

    assert refused.status_code == 422
    assert key not in refused.json()["detail"].split()


async def test_only_who_was_invited_is_told_that_a_name_is_taken(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    invite = await invited(shared)

    for name in ("maria", "rnaria"):
        taken = await joined(anyone, name, **invite)
        assert (taken.status_code, taken.json()["code"]) == (409, "name-taken")
    assert (await joined(anyone, "mario", **invite)).status_code == 201  # it was not used up


@pytest.mark.parametrize("email", ["x", "a@b c", "a@b\r\nBcc: x@y.z", "@b.c", "a@" + "b" * 300])
async def test_what_is_no_address_is_not_kept_as_one(
    shared: TaskRoom, anyone: httpx2.AsyncClient, email: str
) -> None:
    invite = await invited(shared)

    assert (await joined(anyone, "mailer", owner_email=email, **invite)).status_code == 422


# ── open to all ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("join-open-suffix")
async def test_under_open_registration_taken_reserved_and_retired_names_answer_alike(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    await shared.api.post("/v1/agents", json={"nick": "departed"})
    await shared.api.delete("/v1/agents/departed")
    async with registration(shared, "open"):
        for name in ("maria", "rnaria", "operator", "system", "human", "departed", "nobody-here"):
            done = await joined(anyone, name)
            assert done.status_code == 201, (name, done.text)
            who = done.json()
            bare, _, suffix = who["nick"].rpartition("-")
            assert (bare, len(suffix), who["joined"]) == (name, 4, "open")
            assert who["key"]["scopes"] == ["read", "send", "task"]
        long = (await joined(anyone, "x" * 64)).json()["nick"]
        assert len(long) == 64
    for name in ("maria", "nobody-here"):
        assert (await joined(anyone, name)).status_code == 403


@pytest.mark.requirement("join-once")
async def test_under_open_registration_too_who_asks_again_is_the_same(
    shared: TaskRoom, anyone: httpx2.AsyncClient
) -> None:
    async with registration(shared, "open"):
        done = await asyncio.gather(*(joined(anyone, "lost", key=KEY) for _ in range(5)))

    assert len({(each.json()["uid"], each.json()["key"]["key"]) for each in done}) == 1


async def test_an_open_organisation_takes_only_so_many(
    shared: TaskRoom, anyone: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.directory.joining.MAX_STRANGERS", 0)
    async with registration(shared, "open"):
        full = await joined(anyone, "late")
        invited_one = await joined(anyone, "welcome", **await invited(shared))

    assert full.status_code == 429
    assert invited_one.status_code == 201


# ── who may invite ──────────────────────────────────────────────────────────────────────────────────────────


async def test_who_does_not_administer_invites_nobody(shared: TaskRoom) -> None:
    made = await shared.api.post("/v1/people", json={"nick": "plain"})
    async with bearer(shared, made.json()["key"]["key"]) as plain:
        for method, path in (("POST", ""), ("GET", ""), ("DELETE", f"/{'f' * 16}")):
            body = {} if method == "POST" else None
            refused = await plain.request(method, f"/v1/invites{path}", json=body)
            assert refused.status_code == 403
    await shared.api.delete("/v1/people/plain")
    assert (await shared.api.delete(f"/v1/invites/{'f' * 16}")).status_code == 404
