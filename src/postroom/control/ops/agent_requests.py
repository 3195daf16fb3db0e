"""Requests of agents to the control plane on `ctl.<own>.<verb>`, but those about tasks (docs/architecture.md)."""

from __future__ import annotations

import time
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from postroom.control.ops.table import Operations
from postroom.control.parts import Parts
from postroom.directory.grants import GrantScope, reach, split
from postroom.directory.search import bounded
from postroom.errors import Forbidden, InvalidInput
from postroom.identity import jwt
from postroom.protocol.limits import MAX_AGENT_ANSWER, MAX_LIST
from postroom.protocol.principal import Principal, Scope
from postroom.store.agents import Agent
from postroom_a2a import strict_json
from postroom_a2a.messages import context_fault

Words = Annotated[str, BeforeValidator(lambda given: "" if given is None else str(given))]
Thread = Annotated[str, Field(strict=True)]

operations = Operations()


@operations.ask("agents.resolve", Scope.READ)
async def resolve(parts: Parts, me: Principal, ref: Words = "") -> dict[str, Any]:
    """Who has a nick or a uid, or the address of an agent of another organisation that has let the asker in."""
    named = split(ref)[1]
    if named in ("", me.org):
        return _shown(await parts.directory.known(ref), me.org)
    now, scope = time.time(), GrantScope.MESSAGE
    found = await parts.database.point(lambda store: reach(store, me.org, me.uid, ref, scope, now))
    return _shown(found.agent, me.org)


@operations.ask("agents.list", Scope.READ)
async def list_(parts: Parts) -> dict[str, Any]:
    """Everybody with an address."""
    return {"agents": [_shown(agent, agent.org) for agent in await parts.directory.all()]}


@operations.ask("cards.find", Scope.READ)
async def find(parts: Parts, skill: Words = "", text: Words = "") -> dict[str, Any]:
    """The agents with a card that has a skill, or a text."""
    found = await parts.search.find(skill, text)
    return bounded([entry for entry in found if entry["card"] is not None])


@operations.ask("cards.get", Scope.READ)
async def card(parts: Parts, ref: Words = "") -> dict[str, Any]:
    """An agent, with its card."""
    return {**await parts.search.get(ref)}


@operations.ask("feed.history", Scope.READ)
async def history(
    parts: Parts, me: Principal, project: Words = "", limit: int = 50
) -> dict[str, Any]:
    """The newest posts of a project that the asker is in."""
    if project not in await parts.directory.projects(me.uid):
        raise Forbidden(f"the agent is not in project {project!r}")
    posts = await parts.office.posts(project, limit=min(max(limit, 1), MAX_LIST))
    return {"posts": [post.as_json() for post in posts]}


@operations.ask("messages.thread", Scope.READ)
async def thread(parts: Parts, me: Principal, thread: Thread = "") -> dict[str, Any]:
    """The newest messages of a conversation that the asker is part of, oldest first."""
    if not thread or context_fault(thread):
        raise InvalidInput("'thread' has to be the id of a conversation")
    found = await parts.office.search(thread=thread, seer=me.uid, limit=MAX_LIST)
    return {"messages": _newest([mail.as_json() for mail in found])}


@operations.ask("credential.renew", Scope.READ)
async def renew(parts: Parts, me: Principal, connection: str) -> dict[str, Any]:
    """A new credential for the connection that asks."""
    projects = tuple(await parts.directory.projects(me.uid))
    token = await parts.issuer.renew(connection, me.uid, projects)
    return {"jwt": token, "expires_at": jwt.decode(token)["exp"]}


def _shown(agent: Agent, org: str) -> dict[str, Any]:
    return {**agent.party_in(org).as_json(), "org": agent.org}


def _newest(found: list[Any]) -> list[Any]:
    """Those that fit an answer, oldest first; `found` begins with the newest."""
    kept, size = [], 0
    for record in found:
        size += len(strict_json.dumps(record)) + 1
        if size > MAX_AGENT_ANSWER:
            break
        kept.append(record)
    return kept[::-1]
