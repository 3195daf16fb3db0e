"""Grants: who lets whom in, who asks for it, and who is reached by grants alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from postroom.control.acts import by_owner
from postroom.control.bodies import (
    AdmissionBody,
    GrantAnswerBody,
    GrantBody,
    GrantRequestBody,
    GrantsOnlyBody,
)
from postroom.control.in_flight import acted_on
from postroom.control.ops.keys import Ended, expiry
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import Ref
from postroom.control.parts import Parts
from postroom.directory.grants import GrantScope
from postroom.directory.letting_in import Wanted
from postroom.errors import Conflict, NotFound, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Principal, Scope
from postroom.store.grants import Admission

GrantRef = Annotated[
    str,
    Field(
        description="Its id, 4 or more of the first digits, or whom it lets in, as lists show that."
    ),
]

RequestRef = Annotated[
    str, Field(description="Its id, or 4 or more of the first digits if only one has them.")
]

Answered = Annotated[bool, Field(description="Also those that are answered.")]


operations = Operations()


@operations.get("/v1/grants", Scope.READ, door=True, fails=(NotFound,), strangers=True)
async def list_(
    parts: Parts, me: Principal, agent: Ref = "", *, ended: Ended = False
) -> answers.Grants:
    """List who is let in.

    That is whom the caller has let in, and who has let in the caller, each also for the agents that belong to the
    caller. With `agent` those of one of these agents. Who administers sees all that the organisation has let in.
    """
    return {"grants": await parts.grants.listed(me, agent, ended=ended), "next": None}


@operations.post(
    "/v1/grants",
    Scope.SEND,
    status=201,
    door=True,
    by_owner=True,
    fails=(NotFound, Refused, *STORING),
    strangers=True,
)
async def allow(parts: Parts, body: GrantBody, me: Principal) -> shapes.Grant:
    """Let an agent in.

    It may then reach the caller, or `granter`, which is an agent of the caller's; who administers may for any. A
    person lets in for all agents that belong to them. An agent of another organisation is named `@nick.org`, or by its
    uid; the answer is the same whether there is one. It takes the place of what the same agent was let in for before.
    Of a program without the scope `grant` its owner is asked (202).
    """
    if body.granter:
        await parts.gate.sees(me, body.granter)
    wanted = Wanted(body.scopes, expiry(body.expires_in))
    if not me.is_free:
        meant = await parts.grants.meant(me, body.grantee, body.granter)
        given = {
            "grantee": meant.grantee,
            "granter": meant.granter,
            **_until(wanted, body.expires_in),
        }
        words = f"let @{meant.called} in to @{meant.granter_nick} {_for(wanted, body.expires_in)}"
        await by_owner(parts, me, "grants.allow", given, words)
    made = await parts.grants.allow(me, body.grantee, wanted, body.granter)
    acted_on(about=made["id"])
    return made


@operations.delete(
    "/v1/grants/{grant}", Scope.SEND, door=True, fails=(NotFound, Conflict), strangers=True
)
async def revoke(parts: Parts, grant: GrantRef, me: Principal) -> shapes.Grant:
    """Take a grant back.

    It counts from the next message on, and cuts the streams that stand on it; what was accepted stays. Whoever has
    given it may, who owns that agent, and who administers.
    """
    ended = await parts.grants.revoke(me, grant)
    acted_on(about=ended["id"])
    return ended


@operations.get("/v1/grants/requests", Scope.READ, door=True, strangers=True)
async def requests(
    parts: Parts, me: Principal, *, answered: Answered = False
) -> answers.GrantRequests:
    """List who asks to be let in.

    That is by the caller, or by an agent of the caller's. All that the organisation is asked for who administers.
    """
    return {"requests": await parts.grants.requests(me, answered=answered), "next": None}


@operations.post("/v1/grants/requests", Scope.SEND, door=True, fails=(NotFound,), strangers=True)
async def ask(parts: Parts, body: GrantRequestBody, me: Principal) -> answers.Asked:
    """Ask an agent to be let in.

    The answer is the same whether there is such an agent. There is one request a pair; another one takes its place. Who
    was denied can ask again after a week.
    """
    await parts.grants.ask(me, body.granter, body.scopes, body.reason)
    return {"granter": body.granter, "asked": True}


@operations.post(
    "/v1/grants/requests/{asked}",
    Scope.SEND,
    door=True,
    by_owner=True,
    fails=(NotFound, Conflict, Refused, *STORING),
    strangers=True,
)
async def answer(
    parts: Parts, asked: RequestRef, body: GrantAnswerBody, me: Principal
) -> shapes.GrantRequest:
    """Answer who asks to be let in.

    The first answer counts; 409 says who gave it. Allowed, it becomes a grant; of a program without the scope `grant`
    its owner is asked (202).
    """
    wanted, allow = Wanted(body.scopes, expiry(body.expires_in)), body.decision == "allowed"
    if allow and not me.is_free:
        request = await parts.grants.requested(me, asked)
        for_ = Wanted(body.scopes or [GrantScope(each) for each in request["scopes"]])
        given = {"asked": request["id"], "decision": "allowed", **_until(for_, body.expires_in)}
        who, whose = request["grantee"]["nick"], request["granter"]["nick"]
        words = f"let @{who} in to @{whose}, as it has asked, {_for(for_, body.expires_in)}"
        await by_owner(parts, me, "grants.answer", given, words)
    done = await parts.grants.answer(me, asked, wanted, allow=allow)
    acted_on(about=done["id"])
    return done


@operations.get("/v1/grants/only", Scope.READ, door=True, fails=(NotFound,), strangers=True)
async def only(parts: Parts, me: Principal, agent: Ref = "") -> shapes.GrantsOnly:
    """Show whether an agent is reached by grants alone.

    It is the caller, or an agent of the caller's.
    """
    return await parts.grants.only(me, agent)


@operations.put(
    "/v1/grants/only",
    Scope.SEND,
    door=True,
    by_owner=True,
    fails=(NotFound, *STORING),
    strangers=True,
)
async def set_only(parts: Parts, body: GrantsOnlyBody, me: Principal) -> shapes.GrantsOnly:
    """Say whether an agent is reached by grants alone.

    It is the caller, or an agent of the caller's. To be reached by all again is said by a person, or by a program with
    the scope `grant`; of any other its owner is asked (202).
    """
    if body.agent:
        await parts.gate.sees(me, body.agent)
    if not body.grants_only and not me.is_free:
        agent = (await parts.grants.only(me, body.agent))["agent"]
        given = {"grants_only": False, "agent": agent["uid"]}
        words = f"have @{agent['nick']} reached by everybody of the organisation"
        await by_owner(parts, me, "grants.set_only", given, words)
    done = await parts.grants.only(me, body.agent, body.grants_only)
    acted_on(about=done["agent"]["uid"])
    return done


@operations.get("/v1/admission", Scope.READ)
async def admission(parts: Parts) -> shapes.Admission:
    """Show how agents come into the organisation.

    And whether its agents are reached by grants alone.
    """
    return _shown(await parts.grants.admission())


@operations.put("/v1/admission", Scope.ADMIN)
async def admit(parts: Parts, body: AdmissionBody) -> shapes.Admission:
    """Set how agents come into the organisation.

    And whether its agents are reached by grants alone.
    """

    def change(known: Admission) -> Admission:
        said = known.grants_only if body.grants_only is None else body.grants_only
        return replace(
            known, registration=body.registration or known.registration, grants_only=said
        )

    return _shown(await parts.grants.admission(change))


def _until(wanted: Wanted, seconds: float | None) -> dict[str, Any]:
    """The fields of what is let in for, and how long, as they are asked for."""
    return {"scopes": wanted.words.split(), "expires_in": seconds}


def _for(wanted: Wanted, seconds: float | None) -> str:
    """The same for a person."""
    until = "for ever" if seconds is None else f"for {seconds / 86400.0:.4g} days from then"
    return f"for {', '.join(wanted.words.split())}, {until}"


def _shown(admission: Admission) -> shapes.Admission:
    return {"registration": admission.registration, "grants_only": admission.grants_only}
