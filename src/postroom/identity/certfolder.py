"""Certificates on disk: the local authority's folder, and files that somebody else looks after.

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
from postroom.identity.certificates import Certificate, Pair, canonical

MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where a certificate, its key, and what clients trust are.

    Attributes:
        certificate: PEM, the server's own first.
        key: PEM; may be the same file.
        ca: PEM of the authority; None where clients know it already.
        local: made by Postroom, which renews it.
    """

    certificate: Path
    key: Path
    ca: Path | None
    local: bool

    def read(self) -> tuple[Certificate, bytes]:
        """What the certificate says, and chain and key as one PEM.

        Raises:
            NotFound: a file is missing.
            InvalidInput: a file is not what it should be, others can read the key, or it is another's.
        """
        chain = _content(self.certificate)
        key = _content(self.key, private=True)
        try:
            return certificates.read(chain), certificates.bundle(chain, key)
        except InvalidInput as error:
            raise InvalidInput(
                f"{self.certificate} with {self.key}: {error.message}", remedy=error.remedy
            ) from error

    def stamps(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when a file does."""
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
    """Names that every local certificate has: this machine's, as itself sees it."""
    names = ["localhost", "127.0.0.1", "::1"]
    with contextlib.suppress(InvalidInput):  # a name that no certificate can have
        names.append(canonical(socket.gethostname()))
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
        """Whether there is an authority."""
        return self.ca.exists() or self.ca_key.exists()

    def authority(self) -> Certificate:
        """What the authority's certificate says."""
        return certificates.read(_content(self.ca))

    def init(
        self, hosts: Sequence[str], *, days: float, now: float, force: bool = False
    ) -> Certificate:
        """Make an authority for this machine's own names and `hosts`, and a certificate under it.

        Args:
            hosts: further host names and addresses.
            force: replace an authority that is there; who trusts that one will not trust this one.

        Raises:
            Conflict: there is one already.
            InvalidInput: a host is malformed, or the days are out of bounds.
            StateUnwritable: the folder cannot be written.
        """
        if self.exists and not force:
            raise Conflict(
                f"there is an authority in {self.folder} already",
                remedy="postroom tls renew; or with --force a new one, that every client has to be given",
            )
        names = tuple(dict.fromkeys((*own_names(), *map(canonical, hosts))))
        authority = certificates.make_authority(names, now=now)
        pair = certificates.issue(authority, names, now=now, days=days)
        _write(self.ca_key, authority.key)
        _write(self.ca, authority.certificate)
        _write(self.server, pair.certificate + pair.key)
        return certificates.read(pair.certificate)

    def renew(self, *, now: float, days: float | None = None) -> Certificate:
        """A new certificate with the names of the present one, under the same authority.

        Args:
            days: its validity; as long as the present one's if not given.

        Raises:
            NotFound: there is nothing to renew.
            InvalidInput: a file is damaged, or the authority has expired.
            StateUnwritable: the folder cannot be written.
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
        """Put chain and key beside the copy that is shown, to be tried; its path."""
        staged = self.folder / "staged.pem"
        _write(staged, pem)
        return staged

    def promote(self) -> Path:
        """What was staged is the copy that is shown; its path."""
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
