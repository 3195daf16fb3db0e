"""The callers of the HTTP API: the operator by API key, or a worker through its own door with its own token."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from postroom.control.org_router import WORKER, Scope
from postroom.errors import Forbidden, Unauthorized
from postroom.identity.tokens import digest, matches
from postroom.store.database import Database


@dataclass(frozen=True, slots=True)
class Gate:
    """Checks the credentials of callers.

    Attributes:
        operator_sha256: digest of the operator's API key of this start.
    """

    operator_sha256: str
    database: Database

    def is_operator(self, scope: Scope) -> bool:
        """Whether a request is the operator's; `operator` says why it is not."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if WORKER in scope or len(given) != 1:
            return False
        kind, _, token = given[0].decode("latin-1").partition(" ")
        return kind.lower() == "bearer" and matches(token, self.operator_sha256)

    async def operator(self, request: Request) -> None:
        """Let the operator in; Unauthorized without the key, Forbidden for a worker."""
        if WORKER in request.scope:
            raise Forbidden("workers may not call this")
        if not matches(_bearer(request), self.operator_sha256):
            raise Unauthorized(
                "the API key is not valid", remedy="the key is in server.json of the state folder"
            )

    async def caller(self, request: Request) -> str:
        """Let the operator or a worker in; returns the worker's uid, "" for the operator."""
        uid = request.scope.get(WORKER, "")
        await (self.worker(request, uid) if uid else self.operator(request))
        return uid

    async def worker(self, request: Request, uid: str) -> None:
        """Let worker `uid` in: Forbidden unless through its own door, Unauthorized without its own token."""
        if request.scope.get(WORKER) != uid:
            raise Forbidden("only the worker itself may call this")
        token = digest(_bearer(request))
        owner = await self.database.point(lambda store: store.workers.worker_by_token(token))
        if owner != uid:
            raise Unauthorized("the token is not this worker's")


def _bearer(request: Request) -> str:
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not value:
        raise Unauthorized("a bearer token is missing")
    return value
