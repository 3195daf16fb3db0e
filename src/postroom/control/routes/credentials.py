"""Credentials that the gateway adds to workers' requests: add, list, remove. No answer has a secret in it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.bodies import CredentialBody
from postroom.control.parts import Parts
from postroom.control.principals import needs
from postroom.gateway.credentials import DEFAULT_HEADER, BoundCredential
from postroom.protocol.principal import Scope


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/credentials")
    credentials, org = parts.installation.credentials, parts.directory.org

    @routes.post("", status_code=201)
    @needs(Scope.ADMIN)
    async def add(body: CredentialBody) -> dict[str, Any]:
        workers = [(await parts.workers.record(ref))[0].uid for ref in body.workers]
        credential = BoundCredential.bind(
            body.name,
            org,
            body.host,
            secret=body.secret.get_secret_value(),
            path=body.path,
            header=body.header or DEFAULT_HEADER,
            workers=tuple(workers),
        )
        credentials.add(credential, replacing=body.replace)
        return await shown(credential)

    @routes.get("")
    @needs(Scope.ADMIN)
    async def listing() -> dict[str, Any]:
        return {"credentials": [await shown(credential) for credential in credentials.of(org)]}

    @routes.delete("/{name}", status_code=204)
    @needs(Scope.ADMIN)
    async def remove(name: str) -> None:
        credentials.remove(org, name)

    async def shown(credential: BoundCredential) -> dict[str, Any]:
        nicks = {agent.uid: agent.nick for agent in await parts.directory.all()}
        workers = [{"uid": uid, "nick": nicks.get(uid, "")} for uid in credential.workers]
        return credential.shown() | {"workers": workers}

    return routes
