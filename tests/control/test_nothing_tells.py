"""No operation tells who is not let in whether something exists: every operation, each kind of reference.

The requests are made from the table of operations, so that a new one is covered by itself: a reference goes into each
field that may name something, once to what exists in another organisation, and once to what does not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import update

from postroom.control.api import OPERATIONS
from postroom.control.openapi.document import document
from postroom.control.ops.table import REST, SOCKET, Operation
from postroom.protocol.principal import ALL_SCOPES, USUAL_SCOPES, Scope
from postroom.store.schema import agents
from tests.control.taskroom import SECONDS
from tests.control.tworooms import ACME, Caller, TwoRooms, two_rooms

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("nothing-tells"), pytest.mark.timeout(240)]

UNLIMITED = ("limit_requests", "limit_streams", "limit_strangers", "limit_open", "limit_pair")

NAMES_NOTHING = frozenset(
    {
        *("text", "parts", "subject", "card", "url", "events", "reason", "state", "kind", "skill"),
        *("description", "metadata", "decision", "input", "type", "channel", "pin", "old", "tool"),
        *(
            "scopes",
            "file",
            "passphrase",
            "host",
            "path",
            "header",
            "secret",
            "workers",
            "template",
        ),
        *("files", "set", "mode", "wall", "folder", "sandbox", "isolation", "client", "version"),
        *(
            "display_name",
            "owner_email",
            "registration",
            "door",
            "wait",
            "autonomy",
            "since",
            "how",
        ),
    }
)
"""Fields that say something and name nothing that is there."""

IN_BODIES = frozenset({"uid", "address", "nick", "at-nick", "task", "message", "project"})
"""Kinds of references that go into each field of a body; one of another kind into the fields that are called so."""

OF_THE_ROOM = frozenset({"orgs", "openings", "backup", "trust", "metrics", "mcp", "credentials"})
"""Nouns of operations about the post room itself, for its operator."""


@dataclass(frozen=True)
class Reference:
    """One that names something, and one in the same form that names nothing."""

    there: str
    nowhere: str


@dataclass(frozen=True)
class Place:
    """A field of an operation that takes a reference."""

    operation: Operation
    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.operation.method} {self.operation.path} {self.name}"


def places() -> Iterator[Place]:
    for each in OPERATIONS:
        if each.method == SOCKET or each.noun in OF_THE_ROOM or REST in each.path:
            continue
        if each.path == "/v1/agents/remote":  # it first calls the address that it is given
            continue
        for name in each.places.values():
            yield Place(each, name, "path")
        for shown, field in each.query.items():
            if shown not in NAMES_NOTHING and "str" in str(field.hint):
                yield Place(each, shown, "query")
        for name in _body(each):
            yield Place(each, name, "body")


def _body(operation: Operation) -> list[str]:
    fields = getattr(operation.body and operation.body.hint, "model_fields", {})
    return [
        name
        for name, field in fields.items()
        if name not in NAMES_NOTHING and "str" in str(field.annotation)
    ]


EXAMPLES = {
    (method.upper(), path): (
        said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    )
    for path, operations in document(OPERATIONS)["paths"].items()
    for method, said in operations.items()
}


def request_of(place: Place, ref: str) -> tuple[str, str, dict[str, Any]]:
    """Method, path and what else of a request with that reference."""
    operation, more = place.operation, dict[str, Any]()
    path = operation.path
    for name in operation.places.values():
        path = path.replace(f"{{{name}}}", ref if name == place.name else "0" * 32)
    body = EXAMPLES.get((operation.method, operation.path))
    if operation.content:
        more["content"] = b"x"
    elif operation.body is not None:
        more["json"] = dict(body or {})
    if place.kind == "query":
        more["params"] = {place.name: ref}
    if place.kind == "body":
        more["json"][place.name] = [ref] if place.name == "ids" else ref
    return operation.method, path, more


def plain(text: str, ref: str) -> str:
    """An answer without what names the reference, instants, and what is new each time."""
    text = text.replace(ref, "REF").replace(ref.removeprefix("@"), "REF")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"a2a_[0-9a-f_]+|[0-9a-f]{32,64}|[a-z2-9]{5}(-[a-z2-9]{5}){3}", "NEW", text)
    text = re.sub(r'"(seq|id|next|requested|number)":\d+', r'"\1":0', text)
    return re.sub(r"in \d+ s\b", "in N s", text)


async def answer(caller: Caller, place: Place, ref: str, *, org: str = "") -> tuple[Any, ...]:
    method, path, more = request_of(place, ref)
    url = f"/orgs/{org}{path}" if org else caller.at(path)
    async with caller.http.stream(method, url, **more) as found:
        endless = found.headers.get("content-type", "").startswith("text/event-stream")
        body = "" if endless else (await found.aread()).decode("utf-8", "replace")
    headers = {k: v for k, v in found.headers.items() if k not in ("date", "retry-after")}
    if "NEW" in plain(body, ref) or "TIME" in plain(body, ref):
        headers.pop("content-length", None)
    return found.status_code, plain(body, ref), sorted(headers.items())


@dataclass
class Stage:
    rooms: TwoRooms
    references: dict[str, Reference]
    nicks: dict[str, Reference]


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    folder = tmp_path_factory.mktemp("rooms")
    async with two_rooms(folder, **dict.fromkeys(UNLIMITED, 0)) as rooms:
        yield Stage(rooms, *await furnished(rooms))


async def furnished(rooms: TwoRooms) -> tuple[dict[str, Reference], dict[str, Reference]]:
    """What there is in acme: at least one of each kind of thing that has an id."""
    bob, dora = await rooms.caller("bob", ACME), await rooms.caller("dora", ACME)
    pia = await rooms.caller("pia", ACME, kind="human", scopes=ALL_SCOPES)

    async def made(who: Caller, path: str, **body: Any) -> Any:
        found = await who.ask("POST", path, json=body)
        assert found.is_success, (path, found.text)
        return found.json()

    message = await made(bob, "/v1/messages", to=dora.agent.nick, text="x", thread="t" * 16)
    task = await made(bob, "/v1/tasks", to=dora.agent.nick, text="x")
    session = await made(pia, "/v1/sessions", client="claude", key="k" * 16, nick="sess-000000")
    await made(pia, "/v1/sessions", client="claude", key="l" * 16, nick="more-000000")
    content = secrets.token_bytes(32)
    await bob.ask("POST", "/v1/blobs", content=content)
    await rooms.acme.directory.set_projects(bob.uid, ["proj-000000"])
    await made(pia, "/v1/projects/proj-000000/posts", text="x")
    grant = await made(pia, "/v1/grants", grantee=dora.agent.nick, granter=bob.agent.nick)
    await made(dora, "/v1/grants/requests", granter=pia.agent.nick, reason="x")
    (asked,) = (await pia.ask("GET", "/v1/grants/requests")).json()["requests"]
    invite = await made(pia, "/v1/invites")
    hook = await made(pia, "/v1/webhooks", url="https://1.1.1.1:9/x", events=["task"])
    ids = {
        "uid": bob.uid,
        "person": pia.uid,
        "message": message["id"],
        "task": task["id"],
        "key": bob.key_id,
        "session": session["uid"],
        "blob": hashlib.sha256(content).hexdigest(),
        "grant": grant["id"],
        "request": asked["id"],
        "webhook": hook.get("id") or hook["webhook"]["id"],
        "invite": invite.get("id") or invite["invite"]["id"],
    }
    found = {kind: Reference(each, nowhere(each)) for kind, each in ids.items()}
    found["prefix"] = Reference(task["id"][:12], nowhere(task["id"])[:12])
    found["thread"] = Reference("t" * 16, "u" * 16)
    found["project"] = Reference("proj-000000", "none-000000")
    named = bob.agent.nick
    other = dora.agent.nick
    found["address"] = Reference(f"@{other}.{ACME}", f"@{nobody(other)}.{ACME}")
    found["session-address"] = Reference(f"more-000000.{ACME}", f"none-000000.{ACME}")
    nicks = {
        "nick": Reference(named, nobody(named)),
        "at-nick": Reference(f"@{pia.agent.nick}", f"@{nobody(pia.agent.nick)}"),
    }
    return found, nicks


def nowhere(there: str) -> str:
    """An id in the same form."""
    head = there.rpartition("_")[0]
    return (
        f"{head}_" * bool(head)
        + hashlib.sha512(there.encode()).hexdigest()[: len(there) - len(head) - bool(head)]
    )


def nobody(nick: str) -> str:
    return f"{nick.partition('-')[0]}-zzzzzz"


async def told_apart(
    caller: Caller, references: dict[str, Reference], *, org: str = "", scopes: frozenset[Scope]
) -> dict[str, Any]:
    """The places where what is there is answered otherwise than what is not, with both answers."""
    found = {}
    for place in places():
        demand = place.operation.demand
        if demand.scope is not None and demand.scope not in scopes:
            continue
        for kind, reference in references.items():
            if place.kind == "body" and kind not in IN_BODIES and kind not in place.name:
                continue
            first = await answer(caller, place, reference.there, org=org)
            second = await answer(caller, place, reference.nowhere, org=org)
            if first != second:
                found[f"{place}: {kind}"] = (first, second)
    return found


def report(found: dict[str, Any]) -> str:
    return "\n".join(f"{place}\n   {one}\n   {other}" for place, (one, other) in found.items())


async def test_a_member_of_another_organisation_learns_nothing_from_its_own_api(stage: Stage):
    scopes = USUAL_SCOPES | {Scope.GRANT}
    alice = await stage.rooms.caller("alice", scopes=scopes)

    found = await told_apart(alice, stage.references, scopes=frozenset(scopes))

    assert not found, report(found)


async def test_who_operates_another_organisation_learns_nothing_from_its_own_api(stage: Stage):
    olga = await stage.rooms.caller("olga", kind="human", scopes=ALL_SCOPES)
    only = ALL_SCOPES - USUAL_SCOPES - {Scope.GRANT}

    found = await told_apart(olga, stage.references, scopes=only)

    assert not found, report(found)


async def test_a_stranger_in_an_organisation_learns_nothing_of_who_is_there(stage: Stage):
    stranger = await stage.rooms.caller("stranger", ACME)
    await stranger.parts.database.write(
        lambda store: store.session.run(
            update(agents).where(agents.c.uid == stranger.uid).values(joined="open")
        )
    )

    found = await told_apart(stranger, stage.references | stage.nicks, scopes=USUAL_SCOPES)

    assert not found, report(found)


async def test_a_member_without_a_part_in_them_learns_nothing_of_what_others_have(stage: Stage):
    mia = await stage.rooms.caller("mia", ACME)
    # The directory has its agents, and every project can be read.
    known = {"uid", "person", "session", "address", "session-address", "project"}
    theirs = {kind: each for kind, each in stage.references.items() if kind not in known}

    found = await told_apart(mia, theirs, scopes=USUAL_SCOPES)

    assert not found, report(found)


async def test_the_other_organisations_api_answers_its_key_for_everything_alike(stage: Stage):
    alice = await stage.rooms.caller("alice")

    some = {kind: stage.references[kind] for kind in ("uid", "task")}
    found = await told_apart(alice, some, org=ACME, scopes=ALL_SCOPES)

    assert not found, report(found)


async def test_audit_log_and_alerts_of_the_callers_side_say_the_same_of_both(stage: Stage):
    alice = await stage.rooms.caller("alice", scopes=USUAL_SCOPES | {Scope.GRANT})
    named = {kind: stage.references[kind] for kind in ("address", "task", "blob")}
    asked, refs = 0, [ref for each in named.values() for ref in (each.there, each.nowhere)]
    for place in places():
        if place.operation.changes and place.operation.demand.scope in USUAL_SCOPES:
            for reference in named.values():
                for ref in (reference.there, reference.nowhere):
                    await answer(alice, place, ref)
                    asked += 1

    lines = await _audited(stage.rooms, alice, asked, refs)

    assert lines[0::2] == lines[1::2]
    said = json.dumps((await stage.rooms.home.api.get("/v1/alerts")).json())
    assert not [ref for ref in named.values() if ref.there.removeprefix("@") in said]


async def _audited(rooms: TwoRooms, caller: Caller, number: int, refs: list[str]) -> list[str]:
    """What the audit log has of the acts of a caller, without what differs for each."""
    async with asyncio.timeout(SECONDS):
        while True:
            text = (await rooms.home.api.get("/v1/audit", params={"limit": 10_000})).text
            lines = [line for line in text.splitlines() if caller.key_id in line]
            if len(lines) >= number:
                break
            await asyncio.sleep(0.05)  # the log is written a moment after the answer
    found = []
    for line in lines:
        record = json.loads(line)
        for name in ("at", "url"):
            record.pop(name)
        said = json.dumps(record)
        for ref in refs:
            said = said.replace(ref, "REF")
        found.append(plain(said, "REF"))
    return found
