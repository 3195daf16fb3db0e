"""A bus credential: the JWT that says who someone is, and the seed that proves it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from postroom.identity import jwt
from postroom.identity.nkeys import KeyPair


@dataclass(frozen=True, slots=True)
class Credential:
    """What a user of the bus connects with.

    Attributes:
        jwt: user JWT; no secret by itself.
        seed: secret text of the user's NKey; not part of the repr.
    """

    jwt: str
    seed: str = field(repr=False)

    @property
    def public(self) -> str:
        """Public key of the user."""
        return KeyPair.from_seed(self.seed).public

    @property
    def name(self) -> str:
        """Name in the JWT; an agent's uid."""
        return str(jwt.decode(self.jwt)["name"])

    @property
    def expires_at(self) -> float | None:
        """Epoch second at which the server closes the connection, None for never."""
        expires = jwt.decode(self.jwt).get("exp")
        return None if expires is None else float(expires)

    def sign(self, nonce: bytes) -> bytes:
        """The 64 bytes of the signature over the server's nonce."""
        return KeyPair.from_seed(self.seed).sign(nonce)

    def jwt_callback(self) -> bytearray:
        """The JWT as nats-py's `user_jwt_cb` gives it."""
        return bytearray(self.jwt.encode())

    def signature_callback(self, nonce: str) -> bytes:
        """The signature as nats-py's `signature_cb` gives it: in base64."""
        return base64.b64encode(self.sign(nonce.encode()))
