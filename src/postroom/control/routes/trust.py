"""The keys that sign credentials: list and rotate."""

from __future__ import annotations

from postroom.control.bodies import RotateBody
from postroom.control.described import fails
from postroom.control.parts import Parts
from postroom.control.principals import Caller, for_installation, needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, RequestTimeout
from postroom.protocol import answers
from postroom.protocol.principal import Scope


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes(prefix="/trust")

    @routes.get("/keys")
    @needs(Scope.ADMIN)
    async def listing() -> answers.TrustKeys:
        """List the public keys that sign credentials."""
        return {"keys": parts.trust.key_list(), "next": None}

    @routes.post("/rotate")
    @needs(Scope.ADMIN)
    @fails(Conflict, RequestTimeout)
    async def rotate(body: RotateBody, me: Caller) -> answers.Rotated:
        """Rotate a kind of keys while everybody stays connected.

        `cut` names who had not moved in time, `steps` what a person must do where the servers are somebody else's.
        """
        if body.kind in {"operator", "proxy"}:
            for_installation(me)
        return (await parts.rotation.rotate(body.kind)).as_json()

    return routes
