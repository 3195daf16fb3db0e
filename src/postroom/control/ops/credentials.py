"""Credentials that the gateway adds to workers' requests: add, list, remove. No answer has a secret in it."""

from __future__ import annotations

from postroom.control.bodies import CredentialBody
from postroom.control.ops.table import Operations
from postroom.control.parameters import NameRef
from postroom.control.parts import Parts
from postroom.errors import Conflict, NotFound, Refused
from postroom.gateway.credentials import DEFAULT_HEADER, REFUSED, BoundCredential
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope

operations = Operations()


@operations.post("/v1/credentials", Scope.ADMIN, status=201, fails=(NotFound, Conflict, Refused))
async def add(parts: Parts, body: CredentialBody) -> shapes.Credential:
    """Add a credential for workers' requests.

    The gateway adds it to requests to `host`. `header` is `Name: value` with `{secret}` in it. 409 for a name that
    is taken, unless `replace`.
    """
    workers = [(await parts.workers.record(ref))[0].uid for ref in body.workers]
    credential = BoundCredential.bind(
        body.name,
        parts.directory.org,
        body.host,
        secret=body.secret.get_secret_value(),
        path=body.path,
        header=body.header or DEFAULT_HEADER,
        workers=tuple(workers),
    )
    parts.installation.credentials.add(credential, replacing=body.replace)
    await parts.alerts.end("it was replaced", REFUSED, about=credential.name)
    return await _shown(parts, credential)


@operations.get("/v1/credentials", Scope.ADMIN)
async def list_(parts: Parts) -> answers.Credentials:
    """List the credentials, without their secrets."""
    found = [
        await _shown(parts, credential)
        for credential in parts.installation.credentials.of(parts.directory.org)
    ]
    return {"credentials": found, "next": None}


@operations.delete("/v1/credentials/{name}", Scope.ADMIN, status=204, fails=(NotFound,))
async def remove(parts: Parts, name: NameRef) -> None:
    """Remove a credential.

    The next request goes without it.
    """
    parts.installation.credentials.remove(parts.directory.org, name)
    await parts.alerts.end("it was removed", REFUSED, about=name)


async def _shown(parts: Parts, credential: BoundCredential) -> shapes.Credential:
    nicks = {agent.uid: agent.nick for agent in await parts.directory.all()}
    return credential.shown(nicks)
