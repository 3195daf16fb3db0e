"""The door for A2A clients over HTTP: it finds the agent and the principal, and hands on to the library's front end."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from postroom.control.a2a.operations import (
    CHANGING,
    OWN,
    DoorOperations,
    DoorPushes,
    DoorTasks,
    as_unseen,
)
from postroom.control.a2a.published import ONE_ORIGIN, PublishedCards
from postroom.control.guests import following
from postroom.control.http_protocol import ABORT, PRINCIPAL
from postroom.control.in_flight import ONLY_READS
from postroom.control.org_router import ORGS, ROUTE, WORKER, App, Receive, Scope, Send, told
from postroom.control.parts import Parts
from postroom.directory.agents import resolve, unknown
from postroom.directory.grants import NOBODY, GrantScope, not_let_in, reach, split
from postroom.errors import Forbidden, NotFound, NotLetIn, PostroomError, Unauthorized
from postroom.protocol import principal
from postroom.protocol.ids import UID
from postroom.protocol.limits import MAX_BODY, MAX_VALUES
from postroom.protocol.principal import Principal
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom_a2a.ecma_json import dumps
from postroom_a2a.http import A2AApplication, Asked, Exchange, Front, ServedCard
from postroom_a2a.http.errors import headers_of, rest_status
from postroom_a2a.http.exchange import JSON, ClientStalled
from postroom_a2a.json_operations import STREAMING
from postroom_a2a.operations import Operations, Perform

PREFIX = "/a2a/"
"""Before the nick or uid of an agent."""

HTTP_ALONE = "/http"
"""Behind the address of an agent: the same address, whose card names the interfaces of its own origin alone."""

GRPC = "a2a+grpc"
"""How a call came in that came over gRPC."""

AGENT = "postroom.a2a"
"""Scope key: the nick or uid that the path names."""


FOLLOWING = STREAMING | {"SendMessage"}
"""Methods whose answer may take as long as a task."""

NOBODY_HERE = Agent(NOBODY, "", "", "external", 0.0)
"""Stands for an agent that there is not."""


@dataclass(frozen=True, slots=True)
class Found:
    """The agent that a path names; `unseen` is the error for who is not let in, None for who is."""

    agent: Agent
    unseen: NotLetIn | None = None


class A2ADoor:
    """The A2A address of each agent of an organisation.

    Args:
        behind: gets the requests for anything else.
    """

    def __init__(self, parts: Parts, behind: App) -> None:
        self._parts = parts
        self._behind = behind
        self._gate = parts.gate
        self._cards = PublishedCards(parts)
        front = Front(self._operations_of, self._admit, self._streaming, MAX_BODY, MAX_VALUES)
        self._application = A2AApplication(front, self._card_of)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection (ASGI 3)."""
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        # Of an organisation that is not open: there is nobody, as for who is not let in.
        org, _, there = (
            path.removeprefix(ORGS).partition("/") if path.startswith(ORGS) else ("",) * 3
        )
        path = f"/{there}" if org else path
        if scope["type"] != "http" or not path.startswith(PREFIX):
            await self._behind(scope, receive, send)
            return
        ref, slash, rest = path.removeprefix(PREFIX).partition("/")
        scope[AGENT] = addressed(ref, org)
        scope[ROUTE] = f"{PREFIX}{{agent}}"
        below = slash + rest
        if f"{below}/".startswith(f"{HTTP_ALONE}/"):
            scope[ONE_ORIGIN] = True
            below = below.removeprefix(HTTP_ALONE)
        exchange = Exchange(scope, receive, send, below)
        try:
            await self._application.serve(exchange)
        except ClientStalled:
            scope[ABORT]()
        except Exception as error:  # noqa: BLE001 (as the API's: each error has its answer)
            await _fail(exchange, error)

    async def greet(self, scope: Scope) -> None:
        """As `CallDoor.greet`."""
        _take_key(Exchange(scope, _no_body, _no_answer))
        await self._gate.greet(scope)

    async def perform(self, scope: Scope, ref: str, method: str, perform: Perform) -> None:
        """As `CallDoor.perform`."""
        scope[AGENT] = ref
        exchange = Exchange(scope, _no_body, _no_answer)
        caller = await self._admit(exchange)
        operations = await self._operations_of(exchange, Asked(method, GRPC, "1.0"))
        counted = self._streaming(exchange, caller) if method in STREAMING else nullcontext()
        with counted:
            await perform(operations, caller)

    async def _admit(self, exchange: Exchange) -> str:
        """Find out who calls."""
        scope = exchange.scope
        _take_key(exchange)
        if WORKER in scope:
            raise Forbidden("workers may not call this")  # they ask by their own sidecar
        return (await self._gate.caller(scope, guests=True)).uid

    def _streaming(self, exchange: Exchange, _caller: str) -> AbstractContextManager[None]:
        self._gate.stream(exchange.scope)  # the guard of all requests counts it until it ends
        return nullcontext()

    async def _operations_of(self, exchange: Exchange, asked: Asked) -> Operations:
        me: Principal = exchange.scope[PRINCIPAL]
        changes = asked.method in CHANGING
        me.require(principal.Scope.TASK if changes else principal.Scope.READ)
        if not changes:
            exchange.scope[ONLY_READS] = True
        card = asked.method == "GetExtendedAgentCard"
        found = await self._found(exchange, me, GrantScope.CARD if card else GrantScope.TASK)
        unseen = found.unseen
        if unseen is not None and asked.method not in OWN:
            raise unseen
        if unseen is None and asked.method in FOLLOWING:
            await following(self._parts, me, found.agent.uid)
        tasks = DoorTasks(self._parts, found.agent, me, asked.door, unseen)

        async def extended() -> ServedCard:
            return await self._cards.extended(exchange, found.agent)

        return DoorOperations(tasks, DoorPushes(self._parts, found.agent, me, unseen), extended)

    async def _card_of(self, exchange: Exchange) -> ServedCard:
        """The public card; without a key only of agents whose card is public."""
        named = bool(exchange.header("authorization") or exchange.header("x-api-key"))
        if named:
            await self._admit(exchange)
            exchange.scope[PRINCIPAL].require(principal.Scope.READ)
            found = await self._found(exchange, exchange.scope[PRINCIPAL], GrantScope.CARD)
            unseen: PostroomError | None = found.unseen
            agent, known = found.agent, unseen is None
        else:
            # As for an agent that is there: who has no key learns of public ones alone.
            agent, known = await self._named(exchange), False
            unseen = Unauthorized("a bearer token is missing")
        with as_unseen(unseen):
            return await self._cards.public(exchange, agent, known=known)

    async def _found(self, exchange: Exchange, me: Principal, scope: GrantScope) -> Found:
        """The agent that the path names, and whether `me` is let in.

        Raises:
            UnknownRecipient: nobody has that name, and `me` is of this organisation.
        """
        ref, now = exchange.scope[AGENT], time.time()
        org = self._parts.owner.org
        if not me.only:
            return Found(await self._named(exchange, there=True))

        if me.guest:
            ref = addressed(ref, org)

        def find(store: Store) -> Found:
            agent = named(store, org, ref)
            try:
                found = reach(store, me.org, me.uid, ref, scope, now).agent
            except NotLetIn:
                return Found(agent, not_let_in(ref))
            if found.org != org or (found.kind == "human" and me.guest):
                return Found(NOBODY_HERE, not_let_in(ref))
            if found.kind == "human":
                raise unknown(ref)
            return Found(found)

        return await self._parts.database.point(find)

    async def _named(self, exchange: Exchange, *, there: bool = False) -> Agent:
        """The agent that the path names; with `there` an error where nobody is called so."""
        ref, org = exchange.scope[AGENT], self._parts.owner.org
        agent = await self._parts.database.point(lambda store: named(store, org, ref))
        if there and agent is NOBODY_HERE:
            raise unknown(ref)
        return agent


def addressed(ref: str, org: str) -> str:
    """What names an agent of `org` elsewhere; `ref` itself where it does, or `org` is ""."""
    bare = org and not UID.fullmatch(ref) and not split(ref)[1]
    return f"{ref}.{org}" if bare else ref


def named(store: Store, org: str, ref: str) -> Agent:
    """The agent of an organisation with that nick or uid that may have a card."""
    nick, of = split(ref)
    try:
        agent = resolve(store, org, nick if of == org else ref)
    except NotFound:
        return NOBODY_HERE
    return NOBODY_HERE if agent.kind == "human" else agent


def _take_key(exchange: Exchange) -> None:
    """Take a key in `X-API-Key` for one in `Authorization: Bearer`, if there is none."""
    key = exchange.header("x-api-key")
    if key and not exchange.header("authorization"):
        line = (b"authorization", b"Bearer " + key.encode("latin-1"))
        exchange.scope["headers"] = [*exchange.scope["headers"], line]


async def _fail(exchange: Exchange, error: Exception) -> None:
    """Answer an error that nobody expects."""
    known = told(exchange.scope, error)
    if exchange.started:
        exchange.scope[ABORT]()  # half an answer must not look like a whole one
        return
    status, document = rest_status(known)
    await exchange.answer(status, dumps(document), JSON, *headers_of(status, known))


async def _no_body() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


async def _no_answer(_message: MutableMapping[str, Any]) -> None:
    pass
