"""Credentials that the gateway adds to workers' requests: add, list, remove. No answer has a secret in it."""

from __future__ import annotations

from postroom.control.bodies import CredentialBody
from postroom.control.described import fails
from postroom.control.parameters import NameRef
from postroom.control.parts import Parts
from postroom.control.principals import needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, NotFound, Refused
from postroom.gateway.credentials import DEFAULT_HEADER, BoundCredential
from postroom.gateway.refusals import REFUSED
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes(prefix="/credentials")
    credentials, org = parts.installation.credentials, parts.directory.org

    @routes.post("", status_code=201)
    @needs(Scope.ADMIN)
    @fails(NotFound, Conflict, Refused)
    async def add(body: CredentialBody) -> shapes.Credential:
        """Add a credential for workers' requests.

        The gateway adds it to requests to `host`. `header` is `Name: value` with `{secret}` in it. 409 for a name that
        is taken, unless `replace`.
        """
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
        await parts.alerts.end("it was replaced", REFUSED, about=credential.name)
        return await shown(credential)

    @routes.get("")
    @needs(Scope.ADMIN)
    async def listing() -> answers.Credentials:
        """List the credentials, without their secrets."""
        found = [await shown(credential) for credential in credentials.of(org)]
        return {"credentials": found, "next": None}

    @routes.delete("/{name}", status_code=204)
    @needs(Scope.ADMIN)
    @fails(NotFound)
    async def remove(name: NameRef) -> None:
        """Remove a credential.

        The next request goes without it.
        """
        credentials.remove(org, name)
        await parts.alerts.end("it was removed", REFUSED, about=name)

    async def shown(credential: BoundCredential) -> shapes.Credential:
        nicks = {agent.uid: agent.nick for agent in await parts.directory.all()}
        return credential.shown(nicks)

    return routes
