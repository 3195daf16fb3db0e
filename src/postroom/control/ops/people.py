"""The caller, and the people of the organisation: add, list, remove."""

from __future__ import annotations

from postroom.control.bodies import PersonBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.keys import expiry, told
from postroom.control.ops.table import ANY_KEY, Operations
from postroom.control.parameters import AgentRef
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, check_key
from postroom.errors import Conflict, InvalidInput, NotFound, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.principal import USUAL_SCOPES, Principal, Scope
from postroom.store.agents import Agent
from postroom_a2a.times import format_time

operations = Operations()


@operations.get("/v1/me", ANY_KEY, strangers=True)
async def me(me: Principal) -> shapes.Principal:
    """Show who the caller is, and what they may do."""
    return {
        "uid": me.uid,
        "nick": me.nick,
        "org": me.org,
        "kind": me.kind,
        "scopes": [scope.value for scope in Scope if me.allows(scope)],
        "method": me.method,
        "key": me.key_id,
        "expires_at": None if me.expires_at is None else format_time(me.expires_at),
    }


@operations.get("/v1/people", Scope.READ)
async def list_(parts: Parts) -> answers.People:
    """List the people of the organisation."""
    people = [_shown(parts, person) for person in await parts.iam.people()]
    return {"people": people, "next": None}


@operations.post("/v1/people", Scope.ADMIN, status=201, fails=(Conflict, Refused, *PIN))
async def add(parts: Parts, body: PersonBody, me: Principal) -> shapes.NewPerson:
    """Add a person, with a first key.

    The secret of the key is in this answer and in no other. With a PIN set, it is needed for a key with `operate`
    or `admin`.
    """
    await check_key(parts, me, body.scopes, body.pin)
    person, made = await parts.iam.add_person(
        me,
        body.nick.removeprefix("@"),
        scopes=frozenset(body.scopes) or USUAL_SCOPES,
        expires_at=expiry(body.expires_in),
    )
    shown = await told(parts, made)
    acted_on(about=person.uid)
    return {**_shown(parts, person), "key": shown}


@operations.delete("/v1/people/{ref}", Scope.ADMIN, fails=(NotFound, Conflict))
async def remove(parts: Parts, ref: AgentRef, me: Principal) -> shapes.Person:
    """Remove a person.

    Their keys are revoked, their sessions end, and what waits for them becomes dead letters.
    """
    person = await parts.directory.resolve(ref)
    if person.kind != "human":
        raise InvalidInput(
            f"@{person.nick} is no person", remedy="postroom people list, postroom agents"
        )
    left = await parts.grants.leaving(person.uid)
    await parts.iam.retire(me, person.uid)
    await left()
    acted_on(about=person.uid)
    await parts.sessions.forget(person.uid)
    await parts.sweep()  # what waits for them becomes dead letters, and the senders hear of it
    return _shown(parts, person)


def _shown(parts: Parts, person: Agent) -> shapes.Person:
    return {
        "uid": person.uid,
        "nick": person.nick,
        "owner": person.uid == parts.owner.uid,
        "created_at": format_time(person.created_at),
    }
