"""The options of a connection: servers, credentials, limits. Pure."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict
from urllib.parse import unquote, urlsplit

from postroom_a2a.errors import InvalidInput

PORT = 4222

OnError = Callable[[Exception], None]

Dial = Callable[
    [Callable[[], asyncio.Protocol], "ServerAddress"],
    Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]],
]
"""Opens a stream to a server: calls `loop.create_unix_connection` or the like with the factory that it gets, and writes
what has to come before NATS begins."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key that proves a connection's identity; each connect calls the functions, which must not wait.

    Attributes:
        sign: gives the raw Ed25519 signature of the server's nonce.
        jwt: gives the user's JWT; None for a bare key.
        nkey: the public key (`U...`); "" with a JWT, which contains it.
    """

    sign: Callable[[bytes], bytes]
    jwt: Callable[[], str] | None = None
    nkey: str = ""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of one server, with the login that it may contain; `tls` demands TLS."""

    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = ""
    token: str = ""

    @property
    def place(self) -> str:
        """Host and port, without the login."""
        return f"{self.host}:{self.port}"


Secret = str | Callable[[], str]
"""A part of a login, or what gives it at each connect and must not wait."""


class ConnectOptions(TypedDict, total=False):
    """The types of the options of `connect`; `Options` explains them."""

    user: Secret
    password: Secret
    token: Secret
    credentials: Credentials | None
    tls: ssl.SSLContext | None
    tls_first: bool
    tls_name: str
    dial: Dial | None
    name: str
    inbox_prefix: str
    timeout: float
    wait: float
    insist: bool
    ping_interval: float
    patience: float
    pending: int
    unread: int
    unread_size: int
    on_error: OnError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one connection.

    Attributes:
        user: with `password`; each is text, or a function that gives it at each connect, as `token` is.
        credentials: a key, or a JWT and its key, in place of user, password and token.
        tls: with a context, nothing is ever sent in clear. None: the default context where TLS is asked for.
        tls_first: begin TLS before the server sends anything (`handshake_first`).
        tls_name: the name that the server's certificate must have; "" for the host dialled.
        dial: opens the stream to a server; None for TCP. TLS, where it is asked for, begins inside the stream.
        name: the connection's name in the server's list.
        inbox_prefix: the prefix of the subjects for answers.
        timeout: seconds for one attempt to connect, and for `close`.
        wait: seconds in which the first connect tries the servers again; 0 to try each once.
        insist: while it connects again, keep asking a server that refuses the credential, since the server may not know
            its accounts yet. If a server ends an established session for that reason, the connection is closed for
            good. Without `insist` the connection gives up a server that refuses twice in a row.
        ping_interval: seconds between the connection's pings; two without an answer end a session that hangs.
        patience: seconds without an answer of JetStream after which another server, if there is one, takes the place of
            one that still answers pings.
        pending: bytes of unsent messages to keep: beyond them `publish` raises while there is no server, and waits
            while the server does not read.
        unread: frames of one subscription that may lie unread; more are dropped, counted and reported.
        unread_size: bytes of one subscription that may lie unread.
        on_error: called with each error that no call waits for; None to log it.
    """

    user: Secret = ""
    password: Secret = ""
    token: Secret = ""
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    tls_first: bool = False
    tls_name: str = ""
    dial: Dial | None = None
    name: str = ""
    inbox_prefix: str = "_INBOX"
    timeout: float = 5.0
    wait: float = 0.0
    insist: bool = False
    ping_interval: float = 30.0
    patience: float = 5.0
    pending: int = 8 * 1024 * 1024
    unread: int = 65_536
    unread_size: int = 64 * 1024 * 1024
    on_error: OnError | None = None


def read_servers(servers: str | Sequence[str]) -> tuple[ServerAddress, ...]:
    """The servers of addresses such as `nats://user:password@host:port` and `tls://token@host`.

    Raises:
        InvalidInput: an address is malformed, or none is given.
    """
    given = [servers] if isinstance(servers, str) else list(servers)
    found = tuple(map(read_server, (each for many in given for each in many.split(","))))
    if not found:
        raise InvalidInput(
            "the address of a NATS server is missing: give one like nats://host:port"
        )
    return found


def read_server(address: str) -> ServerAddress:
    """The server of one address, whose default scheme is `nats`.

    Raises:
        InvalidInput: the address is malformed. The text does not repeat it, since it may contain a password.
    """
    address = address.strip()
    try:
        parts = urlsplit(address if "://" in address else f"nats://{address}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise InvalidInput(
            "the address of a NATS server is malformed: write it like nats://host:port"
        ) from error
    if parts.scheme not in {"nats", "tls"} or not host:
        raise InvalidInput("the address of a NATS server is not like nats://host:port")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    tls = parts.scheme == "tls"
    if user and parts.password is None:
        return ServerAddress(host, port, tls, token=user)
    return ServerAddress(host, port, tls, user, password)


def connect_line(
    options: Options, server: ServerAddress, info: Mapping[str, Any], version: str
) -> bytes:
    """The CONNECT line that answers the server's INFO."""
    fields: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": version,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "echo": True,
    }
    if options.name:
        fields["name"] = options.name
    if token := server.token or _said(options.token):
        fields["auth_token"] = token
    if user := server.user or _said(options.user):
        fields["user"] = user
        fields["pass"] = server.password if server.user else _said(options.password)
    credentials = options.credentials
    if credentials is not None:
        if credentials.jwt is not None:
            fields["jwt"] = credentials.jwt()
        if credentials.nkey:
            fields["nkey"] = credentials.nkey
        if nonce := info.get("nonce"):
            signature = credentials.sign(str(nonce).encode())
            fields["sig"] = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    return b"CONNECT " + json.dumps(fields, separators=(",", ":")).encode() + b"\r\n"


def _said(secret: Secret) -> str:
    return secret if isinstance(secret, str) else secret()
