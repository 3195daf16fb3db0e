"""A bus credential: the JWT that names a user, and the seed that proves it."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroom.identity import jwt
from postroom.identity.nkeys import KeyPair
from postroom_a2a.nats import Credentials


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a user of the bus.

    Attributes:
        jwt: user JWT; no secret by itself.
        seed: secret text of the user's NKey; not in the repr.
    """

    jwt: str
    seed: str = field(repr=False)

    @property
    def public(self) -> str:
        """Public key of the user."""
        return KeyPair.from_seed(self.seed).public

    @property
    def name(self) -> str:
        """Name in the JWT; for an agent its uid."""
        return str(jwt.decode(self.jwt)["name"])

    @property
    def expires_at(self) -> float | None:
        """Epoch second at which the server closes the connection, None for never."""
        expires = jwt.decode(self.jwt).get("exp")
        return None if expires is None else float(expires)

    def sign(self, nonce: bytes) -> bytes:
        """The 64 bytes of the signature over the server's nonce."""
        return KeyPair.from_seed(self.seed).sign(nonce)

    def for_connection(self) -> Credentials:
        """The same for the library's connection."""
        return Credentials(self.sign, lambda: self.jwt)
