"""The address of a PostgreSQL as an operator writes it: what may be shown of it, and what is refused."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from psycopg import Error, pq

from postroom.errors import InvalidInput

SCHEMES = ("postgresql://", "postgres://")

_ENCRYPTED = ("require", "verify-ca", "verify-full")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is.

    Attributes:
        url: with the password, for libpq alone.
        shown: without user, password and parameters, for people and logs.
    """

    url: str = field(repr=False)
    shown: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address in `url`, read as libpq reads it, with its environment (`PGHOST` and the like).

        Raises:
            InvalidInput: it is no address of a PostgreSQL, or somebody on the way could read what is said.
        """
        said = _parameters(url)
        hosts = [*said.get("host", "").split(","), *said.get("hostaddr", "").split(",")]
        place = ",".join(host for host in hosts if host) or "localhost"
        port = said.get("port", "5432")
        address = cls(url, f"postgresql://{place}:{port}/{said.get('dbname', '')}")
        # A service is a file that libpq reads later.
        outside = "service" in said or not all(map(_is_here, hosts))
        if outside and said.get("sslmode") not in _ENCRYPTED:
            raise InvalidInput(
                f"the connection to {address.shown} could be read on its way",
                remedy="add ?sslmode=verify-full (and sslrootcert=FILE for a private authority)",
            )
        return address


def _parameters(url: str) -> dict[str, str]:
    try:
        if not url.startswith(SCHEMES):
            raise ValueError
        options = [*pq.Conninfo.get_defaults(), *pq.Conninfo.parse(url.encode())]
        found = {one.keyword.decode(): one.val.decode() for one in options if one.val}
        port, shown = found.get("port", ""), found.get("host", "") + found.get("dbname", "")
        if "@" in shown or not (port.replace(",", "") or "0").isdecimal():
            raise ValueError  # a sign in the password ended it early, and its rest would be shown
    except (Error, ValueError):
        # Without the text: it may hold a password.
        raise InvalidInput(
            "database.url is not the address of a PostgreSQL",
            remedy="postgresql://USER:PASSWORD@HOST/NAME; write @ : / ? # % in a password as %40 %3A %2F %3F %23 %25",
        ) from None
    return found


def _is_here(host: str) -> bool:
    """Whether `host` (a name, an address, the folder of a socket, or "") is on this machine."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
