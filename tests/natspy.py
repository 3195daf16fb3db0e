"""nats-py as somebody else's client, for tests that want one."""

from __future__ import annotations

import base64
from typing import Any

from postroom.identity.jwt import Credential


def options_of(credential: Credential) -> dict[str, Any]:
    """The options of nats-py's `connect` for a credential."""
    return {
        "user_jwt_cb": lambda: bytearray(credential.jwt.encode()),
        "signature_cb": lambda nonce: base64.b64encode(credential.sign(nonce.encode())),
    }
