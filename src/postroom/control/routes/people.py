"""The caller, and the people of the organisation: add, list, remove."""

from __future__ import annotations

from postroom.control.bodies import PersonBody
from postroom.control.described import fails
from postroom.control.in_flight import acted_on
from postroom.control.parameters import AgentRef
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, check_key
from postroom.control.principals import Caller, any_key, needs
from postroom.control.routes.keys import expiry, told
from postroom.control.routing import Routes
from postroom.errors import Conflict, InvalidInput, NotFound, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.principal import USUAL_SCOPES, Scope
from postroom.store.agents import Agent
from postroom_a2a.times import format_time


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes()
    iam = parts.iam

    @routes.get("/me")
    @any_key
    async def me(me: Caller) -> shapes.Principal:
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

    @routes.get("/people")
    @needs(Scope.READ)
    async def listing() -> answers.People:
        """List the people of the organisation."""
        people = [_shown(parts, person) for person in await iam.people()]
        return {"people": people, "next": None}

    @routes.post("/people", status_code=201)
    @needs(Scope.ADMIN)
    @fails(Conflict, Refused, *PIN)
    async def add(body: PersonBody, me: Caller) -> shapes.NewPerson:
        """Add a person, with a first key.

        The secret of the key is in this answer and in no other. With a PIN set, it is needed for a key with `operate`
        or `admin`.
        """
        await check_key(parts, me, body.scopes, body.pin)
        person, made = await iam.add_person(
            me,
            body.nick.removeprefix("@"),
            scopes=frozenset(body.scopes) or USUAL_SCOPES,
            expires_at=expiry(body.expires_in),
        )
        shown = await told(parts, made)
        acted_on(about=person.uid)
        return {**_shown(parts, person), "key": shown}

    @routes.delete("/people/{ref}")
    @needs(Scope.ADMIN)
    @fails(NotFound, Conflict)
    async def remove(ref: AgentRef, me: Caller) -> shapes.Person:
        """Remove a person.

        Their keys are revoked, and what waits for them becomes dead letters.
        """
        person = await parts.directory.resolve(ref)
        if person.kind != "human":
            raise InvalidInput(
                f"@{person.nick} is no person", remedy="postroom people list, postroom agents"
            )
        await iam.retire(me, person.uid)
        acted_on(about=person.uid)
        await parts.sweep()  # what waits for them becomes dead letters, and the senders hear of it
        return _shown(parts, person)

    return routes


def _shown(parts: Parts, person: Agent) -> shapes.Person:
    return {
        "uid": person.uid,
        "nick": person.nick,
        "owner": person.uid == parts.owner.uid,
        "created_at": format_time(person.created_at),
    }
