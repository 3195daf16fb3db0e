r"""The first line of each connection through a sandbox's one door (docs/architecture.md, The two walls).

    POSTROOM/1 <protocol> <token>\n

`protocol` is `nats`, `http` (the control plane's API) or `egress` (HTTP to the outside), `token` the worker's
bearer token. The gateway answers nothing: it serves what comes next, or it closes the connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.errors import ProtocolViolation

MAX_BYTES = 256
PROTOCOLS = ("nats", "http", "egress")


@dataclass(frozen=True, slots=True)
class Preface:
    """The protocol of a connection, and the token that opens the door."""

    protocol: str
    token: str

    def encode(self) -> bytes:
        """The line."""
        return f"POSTROOM/1 {self.protocol} {self.token}\n".encode("ascii")

    @classmethod
    def decode(cls, line: bytes) -> Preface:
        """The preface in `line`, newline included. Exactly one spelling is valid."""
        if len(line) > MAX_BYTES or not line.endswith(b"\n"):
            raise ProtocolViolation("no preface line")
        try:
            parts = line[:-1].decode("ascii").split(" ")
        except UnicodeDecodeError as error:
            raise ProtocolViolation("the preface is not ASCII") from error
        match parts:
            case ["POSTROOM/1", protocol, token] if protocol in PROTOCOLS and token.isalnum():
                return cls(protocol, token)
        raise ProtocolViolation("the preface is not POSTROOM/1 <protocol> <token>")
