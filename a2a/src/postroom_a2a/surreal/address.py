"""The address of a SurrealDB as an operator writes it: what may be shown of it, and what is refused."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from postroom_a2a.errors import InvalidInput

PREFIX = "surrealdb+"

DEFAULT_PORT = 8000

_FORMS = (
    "surrealdb+file:///FOLDER, surrealdb+wss://USER@HOST/NAMESPACE or surrealdb+mem://;"
    " write @ : / ? # % in a password as %40 %3A %2F %3F %23 %25"
)
_ENCRYPTED = {"ws": False, "http": False, "wss": True, "https": True}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is.

    Attributes:
        shown: without user and password, for people and logs.
        folder: of the embedded engine; None for a server, and in memory.
        server: address of the server's RPC over WebSocket; "" for the embedded engine.
        namespace, database: those in the address; `database` may be "".
    """

    shown: str
    folder: Path | None = None
    server: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    namespace: str = ""
    database: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address in `url`.

        Raises:
            InvalidInput: it is none, or somebody on the way could read what is said.
        """
        scheme, _, rest = url.removeprefix(PREFIX).partition("://")
        if not url.startswith(PREFIX) or url != url.strip():
            raise _malformed()
        if scheme == "mem" and not rest:
            return cls("surrealdb+mem://")
        if scheme == "file" and rest.startswith("/") and rest.strip("/"):
            folder = Path(unquote(rest))
            return cls(f"surrealdb+file://{folder}", folder=folder)
        if scheme in _ENCRYPTED:
            return _of_server(scheme, f"//{rest}")
        raise _malformed()

    def with_password(self, password: str) -> Address:
        """The same with that password, where it has none."""
        return self if self.password else replace(self, password=password)

    @property
    def embedded(self) -> bool:
        """Whether the engine runs in this process."""
        return not self.server


def _of_server(scheme: str, rest: str) -> Address:
    try:
        said = urlsplit(rest)
        host, port = said.hostname or "", said.port or DEFAULT_PORT
    except ValueError:
        raise _malformed() from None
    names = [unquote(name) for name in said.path.split("/") if name]
    odd = said.query or said.fragment or "@" in said.path
    if not host or odd or not 1 <= len(names) <= 2 or not all(map(_is_plain, names)):
        raise _malformed()
    if said.port is None and scheme in {"wss", "https"}:
        port = 443
    encrypted = _ENCRYPTED[scheme]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    shown = f"surrealdb+{scheme}://{place}/{'/'.join(names)}"
    if not encrypted and not _is_here(host):
        raise InvalidInput(
            f"the connection to {shown} could be read on its way",
            remedy="write surrealdb+wss:// (the server, or a proxy before it, needs a certificate)",
        )
    return Address(
        shown,
        server=f"{'wss' if encrypted else 'ws'}://{place}/rpc",
        user=unquote(said.username or ""),
        password=unquote(said.password or ""),
        namespace=names[0],
        database=names[1] if len(names) == 2 else "",
    )


def _is_plain(name: str) -> bool:
    return name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) <= 64


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _malformed() -> InvalidInput:
    # Without the text: it may hold a password.
    return InvalidInput("this is not the address of a SurrealDB", remedy=_FORMS)
