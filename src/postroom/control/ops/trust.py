"""The keys that sign credentials: list and rotate."""

from __future__ import annotations

from postroom.control.bodies import RotateBody
from postroom.control.ops.table import Operations
from postroom.control.parts import Parts
from postroom.control.principals import for_installation
from postroom.errors import Conflict, RequestTimeout
from postroom.protocol import answers
from postroom.protocol.principal import Principal, Scope

operations = Operations()


@operations.get("/v1/trust/keys", Scope.ADMIN)
async def list_(parts: Parts) -> answers.TrustKeys:
    """List the public keys that sign credentials."""
    return {"keys": parts.trust.key_list(), "next": None}


@operations.post("/v1/trust/rotate", Scope.ADMIN, fails=(Conflict, RequestTimeout))
async def rotate(parts: Parts, body: RotateBody, me: Principal) -> answers.Rotated:
    """Rotate a kind of keys while everybody stays connected.

    `cut` names who had not moved in time, `steps` what a person must do where the servers are somebody else's.
    """
    if body.kind in {"operator", "proxy"}:
        for_installation(me)
    return (await parts.rotation.rotate(body.kind)).as_json()
