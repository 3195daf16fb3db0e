"""Certificates on disk: the local authority's folder, and files that an operator maintains.

    ca.pem         the authority's certificate: what clients trust
    ca-key.pem     its key
    server.pem     the server's certificate and its key in one file, so that it changes in one step
    serving.pem    the checked copy that a running post room shows

Private: the folder is 0700, all files are 0600.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import Conflict, InvalidInput, NotFound, StateUnwritable
from postroom.identity import certificates, privatefile
from postroom.identity.certificates import Certificate, Pair
from postroom.protocol.hosts import canonical_name

MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a certificate, its key, and the authority that clients trust.

    Attributes:
        certificate: PEM, the server's own first.
        key: PEM; may be the same file.
        ca: PEM of the authority; None where clients trust it already.
        local: made and renewed by Postroom.
    """

    certificate: Path
    key: Path
    ca: Path | None
    local: bool

    def read(self) -> tuple[Certificate, bytes]:
        """The certificate, and chain up to the authority and key as one PEM.

        Raises:
            NotFound: a file is missing.
            InvalidInput: a file is damaged, others can read the key, or it is another certificate's key.
        """
        chain = _content(self.certificate)
        key = _content(self.key, private=True)
        above = _content(self.ca) if self.ca is not None else b""
        try:
            return certificates.read(chain), certificates.bundle(chain, key, above)
        except InvalidInput as error:
            raise InvalidInput(
                f"{self.certificate} with {self.key}: {error.message}", remedy=error.remedy
            ) from error

    def stamps(self) -> tuple[tuple[int, int, int], ...]:
        """A value that changes when a file does."""
        found = []
        for path in (self.certificate, self.key):
            try:
                at = path.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((at.st_mtime_ns, at.st_ino, at.st_size))
        return tuple(found)


def own_names() -> tuple[str, ...]:
    """Names in every local certificate: this machine's, as it sees itself."""
    names = ["localhost", "127.0.0.1", "::1"]
    with contextlib.suppress(InvalidInput):  # such a name fits no certificate
        names.append(canonical_name(socket.gethostname()))
    return tuple(dict.fromkeys(names))


class CertificateFolder:
    """The folder of the local authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.ca_key = folder / "ca-key.pem"
        self.server = folder / "server.pem"
        self.serving = folder / "serving.pem"

    @property
    def files(self) -> CertificateFiles:
        """The local certificate."""
        return CertificateFiles(self.server, self.server, self.ca, local=True)

    @property
    def exists(self) -> bool:
        """Whether the folder has an authority."""
        return self.ca.exists() or self.ca_key.exists()

    def authority(self) -> Certificate:
        """The authority's certificate."""
        return certificates.read(_content(self.ca))

    def init(
        self, hosts: Sequence[str], *, days: float, now: float, force: bool = False
    ) -> Certificate:
        """Make an authority for this machine's own names and `hosts`, and a server certificate of it.

        Args:
            hosts: further host names and addresses.
            force: replace an existing authority; clients that trust that one will not trust this one.

        Raises:
            Conflict: an authority exists already.
            InvalidInput: a host is malformed, or the days are out of bounds.
        """
        if self.exists and not force:
            raise Conflict(
                f"{self.folder} has an authority already",
                remedy="postroom tls renew; or with --force a new one, that every client has to be given",
            )
        names = tuple(dict.fromkeys((*own_names(), *map(canonical_name, hosts))))
        authority = certificates.make_authority(names, now=now)
        pair = certificates.issue(authority, names, now=now, days=days)
        _write(self.ca_key, authority.key)
        _write(self.ca, authority.certificate)
        _write(self.server, pair.certificate + pair.key)
        return certificates.read(pair.certificate)

    def renew(self, *, now: float, days: float | None = None) -> Certificate:
        """A new certificate with the same names, of the same authority.

        Args:
            days: its validity; None for the present one's.

        Raises:
            NotFound: no certificate to renew.
            InvalidInput: a file is damaged, or the authority has expired.
        """
        above = self.authority()
        if above.not_after <= now:
            raise InvalidInput(
                "the local authority has expired", remedy="postroom tls init --force"
            )
        old = certificates.read(_content(self.server))
        lasting = (old.lifetime - certificates.SKEW) / certificates.DAY if days is None else days
        authority = Pair(_content(self.ca), _content(self.ca_key, private=True))
        pair = certificates.issue(authority, old.names, now=now, days=lasting)
        _write(self.server, pair.certificate + pair.key)
        return certificates.read(pair.certificate)

    def stage(self, pem: bytes) -> Path:
        """Write chain and key beside the served copy, for a trial; return its path."""
        staged = self.folder / "staged.pem"
        _write(staged, pem)
        return staged

    def promote(self) -> Path:
        """Make the staged file the served copy; return its path."""
        try:
            return (self.folder / "staged.pem").replace(self.serving)
        except OSError as error:
            raise StateUnwritable(f"cannot write {self.serving}: {error.strerror}") from error


def _content(path: Path, *, private: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            if private and os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidInput(f"others can read the key {path}", remedy=f"chmod 600 {path}")
            return file.read(MAX_BYTES)
    except FileNotFoundError as error:
        raise NotFound(f"there is no {path}", remedy="postroom tls init") from error
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error


def _write(path: Path, content: bytes) -> None:
    try:
        privatefile.prepare(path.parent)
        privatefile.replace(path, content)
    except OSError as error:
        raise StateUnwritable(f"cannot write {path}: {error.strerror}") from error
