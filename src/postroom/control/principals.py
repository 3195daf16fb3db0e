"""The callers of the HTTP API: resolved to a principal once for every request, and held to the scope of the operation.

A person or an external agent comes with an API key, a worker through its own door with its own token. What each
operation demands of them stands in the table (`ops.table.Demand`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from postroom.control.http_protocol import PRINCIPAL
from postroom.control.limits import PAUSE, CallerLimits, Comer
from postroom.control.ops.table import Operation
from postroom.control.org_router import WORKER
from postroom.control.org_router import Scope as AsgiScope
from postroom.directory.grants import GrantScope
from postroom.directory.iam import IAMProvider
from postroom.directory.strangers import check_tied
from postroom.errors import Forbidden, TooManyRequests, Unauthorized
from postroom.identity.tokens import digest
from postroom.protocol.principal import (
    DOOR,
    OPERATOR_KEY,
    USUAL_SCOPES,
    Principal,
)
from postroom.protocol.sockets import bearer_of
from postroom.settings import DEFAULT_ORG
from postroom.store.agents import Agent
from postroom.store.database import Database, Store

REQUEST = "postroom.request"
"""Scope key: the running request, which ends with its key (`control.in_flight`)."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Admits callers to the API of one organisation.

    Attributes:
        iam: knows who is behind an API key.
        entered: called with a running request, once it is known whose it is.
        streaming: called with a running request that is going to be a stream; refuses it with an error.
        called: told of each caller (uid) that is no worker.
        limits: of those that come with a key, or without one.
    """

    iam: IAMProvider
    database: Database
    entered: Callable[[Any, Principal], None] = lambda _request, _principal: None
    streaming: Callable[[Any], None] = lambda _request: None
    called: Callable[[str], None] = lambda _: None
    limits: CallerLimits = field(default_factory=CallerLimits)

    async def admit(self, scope: AsgiScope, operation: Operation) -> Principal | None:
        """The principal of a request for `operation`, None where that demands none.

        Raises:
            Unauthorized: the key or the token is missing or not valid.
            Forbidden: the principal has not the scope, or is a worker where only others may call.
            Refused: the caller has reached a limit (`control.limits`).
        """
        demand = operation.demand
        if demand.open:
            if operation.changes or not _has_key(scope):
                await self._failed(Comer((scope.get("client") or ("",))[0]))
            return None
        if WORKER in scope and not demand.door:
            raise Forbidden("workers may not call this")
        principal = await self.caller(scope)
        if demand.scope is not None:
            principal.require(demand.scope)
        if principal.stranger and not operation.strangers:
            raise Forbidden(
                "this is for members of the organisation, and you came by open registration",
                remedy="ask who runs the post room for an invite",
            )
        if operation.streams:
            self.stream(scope)
        return principal

    async def caller(self, scope: AsgiScope, *, guests: bool = False) -> Principal:
        """Who has sent a request, whatever it asks for; counts it. Raises Unauthorized, Refused.

        Args:
            guests: callers of other organisations may come.
        """
        principal: Principal | None = scope.get(PRINCIPAL)
        if principal is None:
            principal = scope[PRINCIPAL] = await self._resolve(scope, guests=guests)
        if REQUEST in scope:
            self.entered(scope[REQUEST], principal)
        if principal.method != DOOR and not principal.guest:
            self.called(principal.uid)
        return principal

    async def sees(self, me: Principal, ref: str, scope: GrantScope | None = None) -> None:
        """Raise NotLetIn where `me` is a stranger whom no grant ties to the agent `ref`, or none for `scope`."""
        if me.stranger:
            now = time.time()
            await self.database.point(lambda store: check_tied(store, me, ref, now, scope))

    async def greet(self, scope: AsgiScope) -> None:
        """Refuse a call without a key of any organisation, before anything of it is read. Raises as `caller`."""
        comer, token = self._comer(scope)
        if self.limits.knows(comer):
            return  # `caller` counts it, and looks whether the key is still valid
        self.limits.begin(comer)
        try:
            await self.iam.know(token)
        except Unauthorized:
            await self._failed(comer)
            raise

    def stream(self, scope: AsgiScope) -> None:
        """Say that an admitted request is going to be a stream of events; raises Refused where there are too many."""
        if REQUEST in scope:
            self.streaming(scope[REQUEST])

    async def _resolve(self, scope: AsgiScope, *, guests: bool) -> Principal:
        if WORKER in scope:
            return await self._worker(scope[WORKER], digest(_bearer(scope)))
        comer, token = self._comer(scope)
        self.limits.begin(comer)
        try:
            principal = await self.iam.resolve(token, guests=guests)
        except Unauthorized:
            await self._failed(comer)
            raise
        self.limits.known(comer, principal)
        return principal

    async def _failed(self, comer: Comer) -> None:
        """Count a wrong key; one too many is refused late. Raises TooManyRequests."""
        try:
            self.limits.failed(comer)
        except TooManyRequests as error:
            await asyncio.sleep(min(error.seconds, PAUSE))
            raise

    def _comer(self, scope: AsgiScope) -> tuple[Comer, str]:
        """Who comes, and with which key. Raises Unauthorized without one, Refused for too many of those."""
        comer = Comer((scope.get("client") or ("",))[0])
        try:
            token = _bearer(scope)
        except Unauthorized:
            self.limits.begin(comer)
            self.limits.failed(comer)
            raise
        return Comer.of(comer.address, token), token

    async def _worker(self, uid: str, token: str) -> Principal:
        """The worker whose door a request came through, with its own token."""

        def find(store: Store) -> Agent | None:
            known = store.workers.worker_by_token(token) == uid
            return store.agents.agent_by_uid(uid) if known else None

        who = await self.database.point(find)
        if who is None:
            raise Unauthorized("the token is not this worker's")
        return Principal(who.uid, who.org, who.nick, who.kind, USUAL_SCOPES, DOOR)


def itself(me: Principal, uid: str) -> None:
    """Raise Forbidden unless `me` is the worker with that uid, through its own door."""
    if me.method != DOOR or me.uid != uid:
        raise Forbidden("only the worker itself may call this")


def for_installation(me: Principal) -> None:
    """Raise Forbidden unless `me` may do what concerns all organisations: the operator, or one of the default one."""
    if me.org != DEFAULT_ORG and me.key_id != OPERATOR_KEY:
        raise Forbidden("this concerns every organisation: it is for the operator")


def for_operator(me: Principal) -> None:
    """Raise Forbidden unless `me` has the operator's key: of other keys the scopes do not matter."""
    if me.key_id != OPERATOR_KEY:
        raise Forbidden("this is for the operator's key alone", remedy="ask the operator")


def _has_key(scope: AsgiScope) -> bool:
    return any(name == b"authorization" for name, _ in scope["headers"])


def _bearer(scope: AsgiScope) -> str:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) > 1:
        raise Unauthorized("a request has one Authorization header")
    if not given and (token := bearer_of(scope.get("subprotocols") or ())):
        return token  # of a browser's WebSocket
    kind, _, token = given[0].decode("latin-1").partition(" ") if given else ("", "", "")
    if kind.lower() != "bearer" or not token:
        raise Unauthorized("a bearer token is missing")
    return token
