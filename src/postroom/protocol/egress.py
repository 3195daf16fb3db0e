"""The hosts outside that a worker may reach: the rules of `[overrides] egress`, and how a request is matched.

host  *.host  host:port  scheme://host[:port][/path]

The default scheme is https, the default port that of the scheme. `*` stands for exactly one label, the first one, as
in a certificate. A path is a prefix that ends where a segment ends.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from postroom.errors import InvalidInput, InvalidTemplate
from postroom.protocol.hosts import authority, is_address, split_authority
from postroom.protocol.limits import MAX_RULES
from postroom.protocol.similar import did_you_mean

PORTS = {"https": 443, "http": 80}
"""Supported schemes with their ports."""


_VISIBLE = re.compile(r"[\x21-\x7e]*")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_STRUCTURAL = frozenset(b"./\\%?#;") | frozenset(range(0x21)) | {0x7F}
"""Characters that change the meaning of a path when a server decodes them."""


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a request.

    Attributes:
        scheme: `https` or `http`.
        host: in its canonical spelling (`canonical_host`).
        port: never 0.
        path: begins with `/`; without the query.
        query: the text after the `?`, "" if there is none.
    """

    scheme: str
    host: str
    port: int
    path: str = "/"
    query: str = ""

    @property
    def origin(self) -> str:
        """Scheme, host and port, as a URL has them."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host, and the port if it is not the scheme's default: the value of a Host header."""
        return authority(self.host, self.port, PORTS[self.scheme])

    @property
    def url(self) -> str:
        """The URL without its query."""
        return self.origin + self.path

    @classmethod
    def parse(cls, scheme: str, place: str, rest: str) -> Target:
        """The target of the scheme, the `host[:port]` and the rest of a URL.

        Raises:
            InvalidInput: it is not a target, or servers could read it in two ways.
        """
        if scheme not in PORTS:
            raise InvalidInput(f"the scheme {scheme!r} is not supported", remedy="https or http")
        host, port = split_authority(place, PORTS[scheme])
        path, _, query = rest.partition("?")
        path = path or "/"
        if not path.startswith("/") or _VISIBLE.fullmatch(rest) is None or "#" in rest:
            raise InvalidInput("the path of the request is malformed")
        return cls(scheme, host, port, path, query)


def is_plain(path: str) -> bool:
    """Whether every server reads the path as it stands: no dot or empty segment, backslash or hidden separator."""
    if "\\" in path or "//" in path:
        return False
    for escape in _ESCAPE.finditer(path):
        if escape[1] is None or int(escape[1], 16) in _STRUCTURAL:
            return False
    if not _reads_one_way(path):
        return False
    # Some servers cut `;parameters` off a segment before they resolve it.
    return not any(part.partition(";")[0] in {".", ".."} for part in path.split("/"))


def _reads_one_way(path: str) -> bool:
    """Whether the escapes are UTF-8, and no character is one that some servers take for a structural one.

    UTF-8 rules out an overlong dot (`%C0%AE`). A server that normalizes would turn a full-width dot (`%EF%BC%8E`)
    into a plain one, so that is refused too.
    """
    try:
        text = unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return text.isascii() or not any(
        ord(part) in _STRUCTURAL
        for character in text
        if not character.isascii()
        for part in unicodedata.normalize("NFKC", character)
    )


def below(path: str, prefix: str) -> bool:
    """Whether `path` is `prefix` or lies below it; an ambiguous path lies below `/` only."""
    if prefix == "/":
        return True
    stem = prefix.removesuffix("/")
    return is_plain(path) and (path == stem or path.startswith(stem + "/"))


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One entry of the allow-list.

    Attributes:
        host: in its canonical spelling; after `*.` if `wildcard`.
        path: prefix, `/` for all.
    """

    scheme: str
    host: str
    port: int
    path: str = "/"
    wildcard: bool = False

    @classmethod
    def parse(cls, text: str) -> EgressRule:
        """The rule in `text`.

        Raises:
            InvalidTemplate: it is not a rule; the error says why.
        """
        try:
            return cls._parse(text)
        except InvalidInput as error:
            raise InvalidTemplate(
                f"overrides.egress names {text!r}: {error.message}", remedy=error.remedy
            ) from error

    @classmethod
    def _parse(cls, text: str) -> EgressRule:
        scheme, found, rest = text.rpartition("://")
        if not found:
            scheme = "https"
        if scheme not in PORTS:
            remedy = did_you_mean(scheme.lower(), PORTS, form=repr) or "https or http"
            raise InvalidInput(f"the scheme {scheme!r} is not supported", remedy=remedy)
        place, slash, path = rest.partition("/")
        if "?" in rest or "#" in rest:
            raise InvalidInput("a rule has no query", remedy="leave out what follows the path")
        if "*" in path or not is_plain(slash + path) or _VISIBLE.fullmatch(path) is None:
            raise InvalidInput(
                "its path can be read in more than one way", remedy="a plain prefix, such as /v1"
            )
        wildcard = place.startswith("*.")
        if "*" in place.removeprefix("*."):
            raise InvalidInput(
                "* stands for the whole first label only", remedy="*.example.com, or name the hosts"
            )
        host, port = split_authority(place.removeprefix("*."), PORTS[scheme])
        if wildcard and (is_address(host) or "." not in host):
            raise InvalidInput("* would stand for too much", remedy="*.example.com")
        return cls(scheme, host, port, slash + path or "/", wildcard)

    def covers(self, target: Target) -> bool:
        """Whether the rule allows a request to `target`."""
        return self.reaches(target.scheme, target.host, target.port) and below(
            target.path, self.path
        )

    def reaches(self, scheme: str, host: str, port: int) -> bool:
        """Whether the rule names the host, for any path."""
        if (scheme, port) != (self.scheme, self.port):
            return False
        if self.wildcard:
            return host.partition(".")[2] == self.host and not is_address(host)
        return host == self.host

    def __str__(self) -> str:
        """The rule as a template can hold it."""
        place = authority(self.host, self.port, PORTS[self.scheme])
        path = "" if self.path == "/" else self.path
        return f"{self.scheme}://{'*.' if self.wildcard else ''}{place}{path}"


@dataclass(frozen=True, slots=True)
class AllowList:
    """The rules of one worker; without a rule it may reach no host outside."""

    rules: tuple[EgressRule, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> AllowList:
        """The rules in `texts`.

        Raises:
            InvalidTemplate: a rule is malformed, or there are too many.
        """
        rules = tuple(EgressRule.parse(text) for text in texts)
        if len(rules) > MAX_RULES:
            raise InvalidTemplate(f"overrides.egress has over {MAX_RULES} entries")
        return cls(rules)

    def covers(self, target: Target) -> bool:
        """Whether a rule covers a request to `target`."""
        return any(rule.covers(target) for rule in self.rules)

    def reaches(self, scheme: str, host: str, port: int) -> bool:
        """Whether a rule names the host, even if only for some paths."""
        return any(rule.reaches(scheme, host, port) for rule in self.rules)

    def tunnels(self, host: str, port: int) -> bool:
        """Whether a rule allows all paths of the host by https: a tunnel hides the path."""
        return any(r.path == "/" and r.reaches("https", host, port) for r in self.rules)
