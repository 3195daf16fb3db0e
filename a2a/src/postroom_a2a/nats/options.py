"""How to reach a NATS server and who to be there. Pure."""

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
"""Opens a stream to a server: calls `loop.create_unix_connection` or the like with the factory that it is given, and
writes what has to be said before NATS begins."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key by which a connection proves who it is; the functions are called at each connect and must not wait.

    Attributes:
        sign: the raw Ed25519 signature of the server's nonce.
        jwt: the user's JWT; None for a bare key.
        nkey: the public key (`U...`); "" with a JWT, which names it.
    """

    sign: Callable[[bytes], bytes]
    jwt: Callable[[], str] | None = None
    nkey: str = ""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """One server.

    Attributes:
        tls: whether it has to be spoken to over TLS.
        user: in its address, "" for none.
    """

    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = ""
    token: str = ""

    @property
    def place(self) -> str:
        """Host and port, without what is secret."""
        return f"{self.host}:{self.port}"


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`; `Options` says what they mean."""

    user: str
    password: str
    token: str
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
    pending: int
    unread: int
    unread_size: int
    on_error: OnError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of one connection.

    Attributes:
        user: with `password`.
        credentials: instead of those: a key, or a JWT and its key.
        tls: context; with one, nothing is ever sent in clear. None: the default context where TLS is asked for.
        tls_first: speak TLS before the server says anything (`handshake_first`).
        tls_name: name that the server's certificate must have; "" for the host dialled.
        dial: opens the stream to a server; None for TCP. TLS is spoken inside it where it is asked for, but not first.
        name: of the connection, as the server lists it.
        inbox_prefix: of the subjects for answers.
        timeout: seconds for one attempt to connect, and for `close`.
        wait: seconds in which the servers are tried again at the first connect; 0 to try each once.
        insist: a server that refuses who we are while we connect again is asked again for ever, since it may not know
            its accounts yet; one that ends an established connection for that reason ends it for good. Without it a
            server is given up that refuses twice in a row.
        ping_interval: seconds between our own pings; two that are not answered end a connection that hangs.
        pending: bytes of unsent messages that are kept: while there is no connection the one too many is refused, and
            while the server does not read, publishing waits.
        unread: frames of one subscription that may lie unread; more are dropped, counted and reported.
        unread_size: bytes of these.
        on_error: told what no call waits for; None to log it.
    """

    user: str = ""
    password: str = ""
    token: str = ""
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
    pending: int = 8 * 1024 * 1024
    unread: int = 65_536
    unread_size: int = 64 * 1024 * 1024
    on_error: OnError | None = None


def read_servers(servers: str | Sequence[str]) -> tuple[ServerAddress, ...]:
    """The servers of addresses as `nats://user:password@host:port` and `tls://token@host`.

    Raises:
        InvalidInput: an address is none, or there is none.
    """
    given = [servers] if isinstance(servers, str) else list(servers)
    found = tuple(map(read_server, (each for many in given for each in many.split(","))))
    if not found:
        raise InvalidInput("no address of a NATS server was given")
    return found


def read_server(address: str) -> ServerAddress:
    """The server of one address; without a scheme it is `nats`.

    Raises:
        InvalidInput: it is none. The text does not repeat it, since it may hold a password.
    """
    address = address.strip()
    try:
        parts = urlsplit(address if "://" in address else f"nats://{address}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise InvalidInput("the address of a NATS server is malformed") from error
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
    said: dict[str, Any] = {
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
        said["name"] = options.name
    if token := server.token or options.token:
        said["auth_token"] = token
    if user := server.user or options.user:
        said["user"] = user
        said["pass"] = server.password if server.user else options.password
    credentials = options.credentials
    if credentials is not None:
        if credentials.jwt is not None:
            said["jwt"] = credentials.jwt()
        if credentials.nkey:
            said["nkey"] = credentials.nkey
        if nonce := info.get("nonce"):
            signature = credentials.sign(str(nonce).encode())
            said["sig"] = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    return b"CONNECT " + json.dumps(said, separators=(",", ":")).encode() + b"\r\n"
