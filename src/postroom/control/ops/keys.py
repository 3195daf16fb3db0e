"""API keys: make, list, rotate, revoke. A key is in the answer that makes it, and in no other."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import Field

from postroom.control.bodies import KeyBody, ReplacingBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import ANY_KEY, Operations
from postroom.control.parameters import KeyRef, Ref
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, check_key
from postroom.directory.iam import NewKey, scopes_of
from postroom.errors import Conflict, Forbidden, NotFound, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.principal import OPERATOR_KEY, USUAL_SCOPES, Principal, Scope
from postroom.store.agents import Agent
from postroom.store.keys import ApiKey
from postroom_a2a.times import format_time

Ended = Annotated[bool, Field(description="Also those that are expired or revoked.")]


operations = Operations()


@operations.get("/v1/keys", ANY_KEY, fails=(NotFound,), strangers=True)
async def list_(
    parts: Parts, me: Principal, agent: Ref = "", *, ended: Ended = False
) -> answers.Keys:
    """The keys of the caller; all, or those of one agent, for who administers them."""
    uid = me.uid
    if me.allows(Scope.ADMIN):
        uid = (await parts.directory.resolve(agent)).uid if agent else ""
    elif agent and (await parts.directory.resolve(agent)).uid != uid:
        me.require(Scope.ADMIN)
    found = await parts.iam.keys(uid, ended=ended)
    if me.key_id == OPERATOR_KEY and uid in ("", me.uid):
        found = [parts.iam.operator_key(), *found]
    agents = {one.uid: one for one in await parts.directory.all(retired=True)}
    return {"keys": [_shown(key, agents) for key in found], "next": None}


@operations.post(
    "/v1/keys", ANY_KEY, status=201, fails=(NotFound, Conflict, Refused, *PIN), strangers=True
)
async def create(parts: Parts, body: KeyBody, me: Principal) -> shapes.NewKey:
    """Make an API key.

    For `agent`, or for the caller; its secret is in this answer and in no other. Nobody gives scopes that they do
    not have. With a PIN set, it is needed for a key with `operate` or `admin`. A program without the scope `grant` asks
    for a code instead, with which its owner claims the key.
    """
    _check_free(me)
    parts.gate.limits.making(me)
    scopes = _scopes(body, me)
    await check_key(parts, me, scopes, body.pin)
    if body.agent:
        await parts.gate.sees(me, body.agent)
    agent = await parts.directory.resolve(body.agent) if body.agent else None
    made = await parts.iam.create_key(
        me,
        agent.uid if agent else me.uid,
        scopes=scopes,
        name=body.name,
        expires_at=expiry(body.expires_in),
    )
    return await told(parts, made)


@operations.post(
    "/v1/keys/{key}/rotate",
    ANY_KEY,
    status=201,
    fails=(NotFound, Conflict, Refused, *PIN),
    strangers=True,
)
async def rotate(
    parts: Parts, key: KeyRef, me: Principal, body: ReplacingBody | None = None
) -> shapes.NewKey:
    """Replace a key by a new one with the same scopes.

    The former one is revoked. With a PIN set, it is needed for another key than the caller's with `operate` or
    `admin`. A program without the scope `grant` asks for a code instead, as for `POST /v1/keys`.
    """
    _check_free(me)
    parts.gate.limits.making(me)
    if key not in (me.key_id, OPERATOR_KEY):
        scopes = scopes_of((await parts.iam.key(me, key)).scopes)
        await check_key(parts, me, scopes, (body or ReplacingBody()).pin)
    return await told(parts, await parts.iam.rotate_key(me, key))


@operations.delete("/v1/keys/{key}", ANY_KEY, fails=(NotFound, Conflict), strangers=True)
async def revoke(parts: Parts, key: KeyRef, me: Principal) -> shapes.Key:
    """Revoke a key.

    Requests under way with it are cut.
    """
    ended = await parts.iam.revoke_key(me, key)
    acted_on(about=ended.id)
    agent = await parts.directory.get(ended.uid)
    return _shown(ended, {agent.uid: agent})


def _check_free(me: Principal) -> None:
    """Raise Forbidden where another key is for the owner of `me` to claim."""
    if not me.is_free:
        raise Forbidden(
            f"another key of @{me.nick} is for its owner to claim",
            remedy="ask for a code: a2a_rotate_api_key, or POST /v1/keys/codes",
        )


def expiry(seconds: float | None) -> float | None:
    """The time `seconds` from now."""
    return None if seconds is None else time.time() + seconds


async def told(parts: Parts, made: NewKey) -> shapes.NewKey:
    """The one answer that has a key in it."""
    acted_on(about=made.key.id)
    agent = await parts.directory.get(made.key.uid)
    return {**_shown(made.key, {agent.uid: agent}), "key": made.secret}


def _scopes(body: KeyBody, me: Principal) -> frozenset[Scope]:
    if body.scopes:
        return frozenset(body.scopes)
    if not body.agent and not me.allows(Scope.ADMIN):
        return me.scopes & USUAL_SCOPES or me.scopes
    return USUAL_SCOPES


def _shown(key: ApiKey, agents: dict[str, Agent]) -> shapes.Key:
    agent = agents.get(key.uid)
    party: shapes.Party | None = None
    if agent is not None:
        party = {"uid": key.uid, "nick": agent.nick, "kind": agent.kind}
    maker = agents.get(key.made_by)
    state = "valid"
    if key.revoked_at is not None or (agent is not None and agent.retired):
        state = "revoked"
    elif key.expires_at is not None and key.expires_at <= time.time():
        state = "expired"
    return {
        "id": key.id,
        "agent": party,
        "name": key.name,
        "scopes": [scope.value for scope in Scope if scope in scopes_of(key.scopes)],
        "state": state,
        "created_at": _time(key.created_at or None),
        "expires_at": _time(key.expires_at),
        "used_at": _time(key.used_at),
        "revoked_at": _time(key.revoked_at),
        "made_by": maker.nick if maker else None,
    }


def _time(at: float | None) -> str | None:
    return None if at is None else format_time(at)
