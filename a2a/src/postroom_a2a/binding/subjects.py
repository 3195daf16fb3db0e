"""Subjects of the binding (token rule, URL rule, builders) and its identifiers. Pure.

The wire `a2a-nats/1` defines both rules. They lose information (`a.b` and `a b` give one token) and let wildcards
through, so this module refuses whatever a rule would change, unless the caller asks for compatibility.
"""

from __future__ import annotations

import logging
import re
from ipaddress import AddressValueError, IPv6Address

from postroom_a2a.errors import InvalidInput, InvalidName

NAMESPACE = "a2a"
"""First token of subjects by default."""

MAX_SUBJECT = 1024
"""Bytes of a subject; nats-server takes a little less than 4096 for a whole control line."""

MAX_DURABLE = 128
"""Characters of a consumer's name; the wire cuts the rest."""

SENDER_TOKEN = "urn:postroom:a2a:sender-token:1"
"""Extension of a card: a caller appends its own token to the subject."""

CORE_SCHEME = "nats"
DURABLE_SCHEME = "nats+js"

# JavaScript's white space and line terminators (ECMA-262, 12.2 and 12.3); `str.strip` has another set.
_SPACE = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_LEGAL = re.compile(r"[^\s.*>\x00-\x20\x7f]+(\.[^\s.*>\x00-\x20\x7f]+)*")

_log = logging.getLogger(__name__)
_warned: set[str] = set()


def token(value: str, *, compatible: bool = False) -> str:
    """`value` (a namespace, an agent's id, a client's id) as one token of a subject.

    Args:
        compatible: apply the wire's rule, instead of refusing a value that the rule would change.

    Raises:
        InvalidName: the token would be empty, or might be another value's token.
    """
    stripped = value.strip(_SPACE)
    changed = _FOREIGN.sub(lambda found: "__" if found[0] > "\uffff" else "_", stripped)
    if not changed:
        raise InvalidName("a token of a subject cannot be empty")
    if changed != value and not compatible:
        raise InvalidName(
            f"{value!r} is not a token of a subject: it would become {changed!r}, which may be another's",
            remedy="use letters, digits, '-' and '_'",
        )
    return changed


def check_subject(subject: str) -> str:
    """`subject`, if a call can be published to it.

    Raises:
        InvalidInput: the subject has wildcards, empty tokens or spaces, or is too long.
    """
    if len(subject.encode("utf-8", "surrogatepass")) > MAX_SUBJECT:
        raise InvalidInput(f"a subject has at most {MAX_SUBJECT} bytes")
    if not _LEGAL.fullmatch(subject):
        raise InvalidInput(
            f"{subject!r} is not a subject for calls: it has a wildcard, an empty token or a space"
        )
    return subject


def may_publish_to(subject: str) -> bool:
    """Whether to publish to a subject that a peer has named.

    Not to one that begins with `$` (a command to JetStream, a key, ...): the peer would borrow our permissions.
    """
    return not subject.startswith("$") and "*" not in subject and ">" not in subject


# ── URLs ─────────────────────────────────────────────────────────────────────────────────────────────

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY = re.compile(
    r"(?:(?P<user>.*)@)?(?P<host>\[[^]]*\]|[^:]*)(?::(?P<port>[0-9]*))?", re.DOTALL
)
_FORBIDDEN_IN_HOST = re.compile(r"[\x00 #/:<>?@[\\\]^|]")
_ENCODED_IN_HOST = re.compile(r"[^\x20-\x7e]")
_ENCODED_IN_PATH = re.compile(r"[^\x21-\x7e]|[\"#<>?^`{}]")
_DOTS = {".": 1, "%2e": 1, "..": 2, ".%2e": 2, "%2e.": 2, "%2e%2e": 2}


def subject_of(url: str, *, compatible: bool = False) -> str:
    """The subject that the URL of a card's interface names; a URL without `://` is the subject itself.

    The host is part of the subject, never the address of a NATS server. User, password, port, query and fragment mean
    nothing; a warning reports them.

    Args:
        compatible: accept a subject that no call can be published to, as the wire's rule does.

    Raises:
        InvalidInput: the URL names no subject.
    """
    text = url.strip(_SPACE)
    if not text:
        raise InvalidInput("NATS agent URL cannot be empty")
    subject = text if "://" not in text else _parsed(text)
    return subject if compatible else check_subject(subject)


def _parsed(text: str) -> str:
    """The subject in a URL, read as the WHATWG's URL parser reads a URL of an unknown scheme."""
    rest = re.sub("[\t\n\r]", "", text.strip("".join(map(chr, range(33)))))
    scheme = _SCHEME.match(rest)
    if scheme is None:
        raise InvalidInput(f"Invalid URL: {text!r}")
    if scheme[1].lower() not in {CORE_SCHEME, DURABLE_SCHEME}:
        raise InvalidInput(f"Unsupported A2A NATS URL protocol: {scheme[1].lower()}:")
    rest = rest[scheme.end() :]
    path = re.split("[?#]", rest, maxsplit=1)[0]
    dropped = len(path) < len(rest)
    host = ""
    if path.startswith("//"):
        authority, slash, path = path[2:].partition("/")
        host, extra = _host(authority, text)
        dropped = dropped or extra
        path = _resolved(slash + path)
    elif path.startswith("/"):
        path = _resolved(path)
    if dropped:
        _warn_once(text)
    subject = ".".join(part for part in (host, path.strip("/").replace("/", ".")) if part)
    if not subject:
        raise InvalidInput("NATS agent URL does not contain a subject")
    return subject


def _host(authority: str, text: str) -> tuple[str, bool]:
    """The host, and whether the authority has more than that."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise InvalidInput(f"Invalid URL: {text!r}")
    host, port = found["host"], found["port"] or ""
    extra = found["user"] is not None or found["port"] is not None
    if (extra and not host) or int(port or 0) > 0xFFFF:
        raise InvalidInput(f"Invalid URL: {text!r}")
    if host.startswith("["):
        try:
            return f"[{IPv6Address(host[1:-1]).compressed}]", extra
        except AddressValueError as error:
            raise InvalidInput(f"Invalid URL: {text!r}") from error
    if _FORBIDDEN_IN_HOST.search(host):
        raise InvalidInput(f"Invalid URL: {text!r}")
    return _ENCODED_IN_HOST.sub(_percent, host), extra


def _resolved(path: str) -> str:
    segments: list[str] = []
    for segment in path.split("/")[1:]:
        dots = _DOTS.get(segment.lower(), 0)
        if dots == 2 and segments:
            segments.pop()
        if not dots:
            segments.append(_ENCODED_IN_PATH.sub(_percent, segment))
    return "/".join(segments)


def _percent(found: re.Match[str]) -> str:
    character = "\ufffd" if "\ud800" <= found[0] <= "\udfff" else found[0]
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _warn_once(url: str) -> None:
    if url not in _warned and len(_warned) < 1000:
        _warned.add(url)
        # The URL may hold a password, so the log does not show it.
        _log.warning(
            "the NATS URL of a card has a user, port, query or fragment: they mean nothing, its host is part of "
            "the subject"
        )


# ── building ─────────────────────────────────────────────────────────────────────────────────────────


def core_subject(agent: str, namespace: str = NAMESPACE, *, compatible: bool = False) -> str:
    """An agent's subject for calls over core NATS."""
    return (
        f"{token(namespace, compatible=compatible)}.agent.{token(agent, compatible=compatible)}.rpc"
    )


def request_subject(agent: str, namespace: str = NAMESPACE, *, compatible: bool = False) -> str:
    """The subject of stored requests to an agent."""
    return f"{token(namespace, compatible=compatible)}.agent.{token(agent, compatible=compatible)}.requests"


def response_subject(client: str, namespace: str = NAMESPACE, *, compatible: bool = False) -> str:
    """The subject of stored answers to a client."""
    return f"{token(namespace, compatible=compatible)}.client.{token(client, compatible=compatible)}.responses"


def card_key(agent: str, namespace: str = NAMESPACE, *, compatible: bool = False) -> str:
    """Key of an agent's card in the registry."""
    return f"{token(namespace, compatible=compatible)}.agents.{token(agent, compatible=compatible)}"


def queue_group(subject: str) -> str:
    """Queue group of the replicas that serve `subject`, named like the durable of a request subject."""
    return token(f"{subject}_server", compatible=True)[:MAX_DURABLE]


def served(subject: str, ending: str, other: str) -> str:
    """`subject`, if an agent can be served on it; wildcards are left to the server.

    Args:
        ending: last token of the other binding's subjects.
        other: the server class for those.

    Raises:
        InvalidInput: `subject` is a URL, is malformed, or belongs to the other binding.
    """
    if "://" in subject:
        raise InvalidInput(f"{subject!r} is a URL, not a subject", remedy="use subject_of(url)")
    if not subject or re.search(r"\s|^\.|\.\.|\.$", subject):
        raise InvalidInput(f"{subject!r} is not a subject: it has an empty token or a space")
    tokens = subject.split(".")
    if len(tokens) == 4 and tokens[1] == "agent" and tokens[3] == ending:
        raise InvalidInput(f"{subject!r} belongs to the other binding: serve it with {other}")
    return subject


def core_url(subject: str) -> str:
    """URL of a card's interface over core NATS."""
    return f"{CORE_SCHEME}://{check_subject(subject)}"


def durable_url(subject: str) -> str:
    """URL of a card's interface over JetStream; the first token is the host."""
    return f"{DURABLE_SCHEME}://{check_subject(subject).replace('.', '/')}"


# ── names of the forms of this binding in a card (docs/binding.md, Identifiers) ──────────────────────

CORE = "NATS"
"""Core NATS, JSON frames, A2A 1.0 or 0.3 by the interface's `protocolVersion`."""

DURABLE = "NATS+JS"
"""JetStream, JSON frames, A2A 1.0 or 0.3."""

CORE_BINARY = "urn:postroom:a2a:nats:1"
"""Core NATS, protobuf, A2A 1.0."""

DURABLE_BINARY = "urn:postroom:a2a:nats-js:1"
"""JetStream, protobuf, A2A 1.0."""

BINDINGS = (CORE_BINARY, CORE, DURABLE_BINARY, DURABLE)
"""All forms, the preferred one first."""
