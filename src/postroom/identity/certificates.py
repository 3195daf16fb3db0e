"""X.509 certificates: a local authority, its server certificates, and the content of a certificate. No files here.

The authority is bound to the names that it was made for (name constraints, RFC 5280 section 4.2.1.10): a thief of its
key can pass for these names and no others, even on a system that trusts the authority.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from postroom.errors import InvalidInput
from postroom.protocol.hosts import address_of, canonical_name
from postroom.protocol.limits import MAX_CERTIFICATE_DAYS

DAY = 86400.0
AUTHORITY_DAYS = 3650
SERVER_DAYS = 90
SKEW = 3600.0
"""Seconds before its making at which a certificate's validity begins: clocks differ."""

WARNINGS = (1, 7, 21)
"""Days before its end at which an alert is raised."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both as PEM; the key is not in the repr."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The content of a certificate.

    Attributes:
        names: its host names and addresses.
        fingerprint: SHA-256 of the certificate, hex.
        self_issued: its issuer is its subject.
    """

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: float
    not_after: float
    fingerprint: str
    self_issued: bool

    def covers(self, name: str) -> bool:
        """Whether it is valid for the host name or address `name`."""
        wanted = canonical_name(name)
        _, _, parent = wanted.partition(".")
        return wanted in self.names or (bool(parent) and f"*.{parent}" in self.names)

    def days_left(self, now: float) -> float:
        """Days until it expires; negative once it has."""
        return (self.not_after - now) / DAY

    @property
    def lifetime(self) -> float:
        """Seconds from begin to end of its validity."""
        return self.not_after - self.not_before


def near_its_end(certificate: Certificate, now: float) -> bool:
    """Whether it is in the last third of its life, and so due for renewal."""
    return certificate.not_after - now <= certificate.lifetime / 3


def warning_due(certificate: Certificate, now: float) -> int | None:
    """The warning that is due (one of `WARNINGS`, in days), or None.

    A certificate with a short life is not warned about before its last third.
    """
    if not near_its_end(certificate, now):
        return None
    left = certificate.days_left(now)
    return next((days for days in WARNINGS if left <= days), None)


def day(at: float) -> str:
    """The day of an instant, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def make_authority(names: Sequence[str], *, now: float, days: float = AUTHORITY_DAYS) -> Pair:
    """A new authority that can vouch for `names` alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("Postroom local authority")
    permitted = [_subtree(one) for one in map(canonical_name, names)]
    certificate = (
        _begun(name, name, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue(authority: Pair, names: Sequence[str], *, now: float, days: float = SERVER_DAYS) -> Pair:
    """A new server certificate for `names` under `authority`, with a new key.

    Raises:
        InvalidInput: the authority may not vouch for a name, or the days are out of bounds.
    """
    if not 0 < days <= MAX_CERTIFICATE_DAYS:
        raise InvalidInput(f"{days:g} days are not within 0 to {MAX_CERTIFICATE_DAYS}")
    above = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise InvalidInput("the authority's key was not made by Postroom")
    key = ec.generate_private_key(ec.SECP256R1())
    wanted = [canonical_name(name) for name in names]
    _check_permitted(above, wanted)
    certificate = (
        _begun(_named("Postroom"), above.subject, key.public_key(), now, days, above)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general(name) for name in wanted]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return _pair(certificate, key)


def read(pem: bytes) -> Certificate:
    """The first certificate in `pem`, which in a chain is the server's own."""
    certificate = _first(pem)
    alternative: tuple[str, ...] = ()
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        alternative = (
            *(name.lower() for name in found.get_values_for_type(x509.DNSName)),
            *(str(address) for address in found.get_values_for_type(x509.IPAddress)),
        )
    except x509.ExtensionNotFound:
        pass  # it names no server
    return Certificate(
        subject=_common(certificate.subject),
        issuer=_common(certificate.issuer),
        names=alternative,
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        self_issued=certificate.issuer == certificate.subject,
    )


def bundle(chain: bytes, key: bytes, above: bytes = b"") -> bytes:
    """Chain and key as one PEM.

    Args:
        above: PEM of authorities; the one that has signed the end of the chain becomes its end, so that a client that
            does not know it yet is shown what it can ask its person about.

    Raises:
        InvalidInput: the key is encrypted, missing, or another certificate's.
    """
    certificate = _first(chain)
    try:
        private = serialization.load_pem_private_key(key, None)
    except TypeError as error:
        raise InvalidInput("the key is encrypted", remedy="store it without a password") from error
    except ValueError as error:
        raise InvalidInput("the file has no private key in PEM") from error
    if _spki(private.public_key()) != _spki(certificate.public_key()):
        raise InvalidInput("the key belongs to another certificate")
    certificates = x509.load_pem_x509_certificates(chain)
    last = certificates[-1]
    if last.issuer != last.subject and above:
        known = x509.load_pem_x509_certificates(above)
        certificates += [each for each in known if _signed(last, each)][:1]
    return b"".join(map(_as_pem, certificates)) + private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


# Inner parts.


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: float,
    days: float,
    above: x509.Certificate | None = None,
) -> x509.CertificateBuilder:
    end = datetime.fromtimestamp(now + days * DAY, UTC)
    if above is not None:
        end = min(end, above.not_valid_after_utc)  # no client accepts it for longer
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - SKEW, UTC))
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name: str) -> x509.GeneralName:
    address = address_of(name)
    return x509.DNSName(name) if address is None else x509.IPAddress(address)


def _subtree(name: str) -> x509.GeneralName:
    address = address_of(name)
    return x509.DNSName(name) if address is None else x509.IPAddress(ipaddress.ip_network(address))


def _check_permitted(authority: x509.Certificate, names: Sequence[str]) -> None:
    try:
        bounds = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return
    for name in names:
        if not any(_permits(tree, name) for tree in bounds.permitted_subtrees or ()):
            raise InvalidInput(
                f"the authority may not vouch for {name}",
                remedy="make a new one: postroom tls init --force --host " + name,
            )


def _permits(tree: x509.GeneralName, name: str) -> bool:
    address = address_of(name)
    if isinstance(tree, x509.IPAddress):
        return address is not None and address in ipaddress.ip_network(str(tree.value))
    if isinstance(tree, x509.DNSName):
        return address is None and (name == tree.value or name.endswith(f".{tree.value}"))
    return False


def _first(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise InvalidInput("the file has no certificate in PEM") from error


def _common(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _spki(public: PublicKeyTypes) -> bytes:
    return public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _as_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Pair(_as_pem(certificate), secret)
