"""Credentials that the gateway adds to workers' requests, each bound to a host and a path, and the file of them.

The file has mode 0600 and is replaced whole. A change counts for the next request. Nothing here prints a secret:
not `repr`, not an error, not what the API shows.

`Refusals`: a credential that its host refuses raises one alert, with the command that mends it, until it is accepted
again. Only the gateway can tell: the worker never has the key, and its program says what it likes.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from postroom.errors import InvalidInput, InvalidTemplate, NameTaken, NotFound, StateUnwritable
from postroom.gateway.port import DoorSpec
from postroom.identity import privatefile
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert
from postroom.protocol.egress import AllowList, EgressRule, Target, below
from postroom.protocol.ids import check_name
from postroom.protocol.limits import MAX_CREDENTIALS, MAX_SECRET
from postroom.protocol.template import Template

SECRET = "{secret}"
DEFAULT_HEADER = "Authorization: Bearer {secret}"

_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}):[ \t]*([\x20-\x7e]*)")
_PRINTABLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OF_THE_CONNECTION = frozenset(
    {
        *("host", "connection", "keep-alive", "content-length", "transfer-encoding", "te"),
        *("trailer", "upgrade", "expect", "proxy-authorization", "proxy-connection"),
    }
)

REFUSED = "credential-refused"
"""Kind of the alert; its `about` is the name of the credential."""

REFUSALS = (401, 403)
"""Statuses by which a host refuses a credential."""

QUIET = 60.0
"""Seconds between two alerts about one credential: some requests of a worker may be refused, and others not."""


@dataclass(frozen=True, slots=True)
class BoundCredential:
    """A secret, and the only requests that it is added to.

    Attributes:
        path: prefix; `/` for all paths.
        form: value of the header with `{secret}` in it.
        workers: uids that may use it; empty for every worker whose template names it.
    """

    name: str
    org: str
    host: str
    scheme: str = "https"
    port: int = 443
    path: str = "/"
    header: str = "Authorization"
    form: str = "Bearer {secret}"
    secret: str = field(default="", repr=False)
    workers: tuple[str, ...] = ()

    @classmethod
    def bind(
        cls,
        name: str,
        org: str,
        host: str,
        *,
        secret: str,
        path: str = "",
        header: str = DEFAULT_HEADER,
        workers: tuple[str, ...] = (),
    ) -> BoundCredential:
        """Check a person's input and make a credential of it.

        Args:
            host: `host`, `host:port` or with a scheme before it; no `*`.
            header: `Name: value` with `{secret}` in the value.

        Raises:
            InvalidInput: a part is malformed; no message repeats the secret.
        """
        rule = EgressRule.parse(host.rstrip("/") + path)
        if rule.wildcard:
            raise InvalidInput("a credential is bound to one host", remedy="name it without *")
        found = _HEADER.fullmatch(header)
        if found is None or SECRET not in found[2]:
            raise InvalidInput("the header is malformed", remedy=f"such as {DEFAULT_HEADER!r}")
        if found[1].lower() in _OF_THE_CONNECTION:
            raise InvalidInput(f"the header {found[1]} cannot carry a credential")
        if len(secret) > MAX_SECRET or _PRINTABLE.fullmatch(secret) is None:
            raise InvalidInput("the secret is empty, too long or not printable ASCII")
        return cls(
            name=check_name(name, "credential"),
            org=org,
            host=rule.host,
            scheme=rule.scheme,
            port=rule.port,
            path=rule.path,
            header=found[1],
            form=found[2].strip(),
            secret=secret,
            workers=workers,
        )

    def serves(self, spec: DoorSpec, target: Target) -> bool:
        """Whether the gateway adds it to a request of that worker to `target`."""
        return (
            self.org == spec.org
            and self.name in spec.credentials
            and (not self.workers or spec.uid in self.workers)
            and (self.scheme, self.host, self.port) == (target.scheme, target.host, target.port)
            and below(target.path, self.path)
        )

    @property
    def line(self) -> tuple[bytes, bytes]:
        """The header as it is sent."""
        return self.header.encode(), self.form.replace(SECRET, self.secret).encode()

    def shown(self, nicks: Mapping[str, str] | None = None) -> shapes.Credential:
        """The fields that the API may show; `nicks` are those of agents by uid."""
        known = nicks or {}
        target = Target(self.scheme, self.host, self.port, self.path)
        return {
            "name": self.name,
            "url": target.url,
            "header": f"{self.header}: {self.form}",
            "workers": [{"uid": uid, "nick": known.get(uid, "")} for uid in self.workers],
        }


class Credentials:
    """All credentials of a post room, in memory and in one file."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one."""
        self._path = path
        self._known: dict[tuple[str, str], BoundCredential] = {}
        for found in self._read():
            self._known[found.org, found.name] = found

    def _read(self) -> list[BoundCredential]:
        try:
            records: list[Mapping[str, Any]] = json.loads(self._path.read_bytes())["credentials"]
            return [
                replace(BoundCredential(**record), workers=tuple(record.get("workers", ())))
                for record in records
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateUnwritable(f"cannot read {self._path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError):
            # Not chained: the error may carry what is in the file.
            raise StateUnwritable(
                f"{self._path} is not a file of credentials", remedy="remove it and add them again"
            ) from None

    def add(self, credential: BoundCredential, *, replacing: bool = False) -> None:
        """Keep a credential; it counts from the next request on.

        Raises:
            NameTaken: the name is taken, and `replacing` is False.
            InvalidInput: the file holds `MAX_CREDENTIALS` already.
        """
        key = credential.org, credential.name
        if key in self._known and not replacing:
            raise NameTaken(
                f"a credential {credential.name!r} exists already",
                remedy="remove it, or use --replace",
            )
        if len(self._known) >= MAX_CREDENTIALS:
            raise InvalidInput(f"there are {MAX_CREDENTIALS} credentials already")
        self._write({**self._known, key: credential})

    def remove(self, org: str, name: str) -> None:
        """Forget a credential; the next request goes without it."""
        if (org, name) not in self._known:
            raise NotFound(f"there is no credential {name!r}", remedy="postroom credential list")
        self._write({key: kept for key, kept in self._known.items() if key != (org, name)})

    def of(self, org: str) -> list[BoundCredential]:
        """All of an organisation, by name."""
        return sorted((c for c in self._known.values() if c.org == org), key=lambda c: c.name)

    def headers(self, spec: DoorSpec, target: Target) -> dict[bytes, tuple[bytes, bytes]]:
        """The headers to add to a request, by lower-case name."""
        return headers_of(self.used(spec, target))

    def used(self, spec: DoorSpec, target: Target) -> list[BoundCredential]:
        """Those that are added to a request: for each header the one with the longest matching path."""
        found = (c for c in self._known.values() if c.serves(spec, target))
        by_header = {c.header.lower(): c for c in sorted(found, key=lambda c: len(c.path))}
        return list(by_header.values())

    def for_url(self, org: str, name: str, url: str, uid: str = "") -> dict[str, str]:
        """The headers of one credential for a request to `url`, names in small letters; none if it is not for that.

        Args:
            uid: of the agent that is called; "" for none, so that one for certain workers does not count.
        """
        parts = urlsplit(url)
        target = Target.parse(parts.scheme, parts.netloc, parts.path or "/")
        spec = DoorSpec(uid, org, "", credentials=(name,))
        found = self.headers(spec, target).values()
        return {header.decode().lower(): value.decode() for header, value in found}

    def _write(self, known: dict[tuple[str, str], BoundCredential]) -> None:
        content = json.dumps({"credentials": [asdict(c) for c in known.values()]}, indent=1)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            privatefile.replace(self._path, content.encode())
        except OSError as error:
            raise StateUnwritable(f"cannot write {self._path}: {error.strerror}") from error
        self._known = known


def headers_of(used: Iterable[BoundCredential]) -> dict[bytes, tuple[bytes, bytes]]:
    """The headers of credentials, by lower-case name."""
    lines = (credential.line for credential in used)
    return {name.lower(): (name, value) for name, value in lines}


def check_credentials(template: Template, known: Sequence[BoundCredential]) -> None:
    """Refuse a template that names a credential which does not exist, or which no rule lets it use."""
    by_name, rules = {credential.name: credential for credential in known}, template.egress
    for name in template.credentials:
        bound = by_name.get(name)
        if bound is None:
            raise InvalidTemplate(
                f"there is no credential {name!r}",
                remedy=f"postroom credential add {name} --host HOST",
            )
        if not AllowList.parse(rules).reaches(bound.scheme, bound.host, bound.port):
            url = bound.shown()["url"].rstrip("/")
            raise InvalidTemplate(
                f"the credential {name!r} is for {url}, which no rule of overrides.egress allows",
                remedy=f'add it below [overrides]: egress = ["{url}"]',
            )


@dataclass(slots=True)
class _Known:
    """What is known of a credential since this process began: whether an alert about it may stand, and since when."""

    credential: BoundCredential
    told: bool = True
    at: float = float("-inf")


class Refusals:
    """Which credentials are refused.

    Args:
        alert: raises an alert in the organisation of that name; one without a text ends those of its cause.
    """

    def __init__(
        self,
        alert: Callable[[str, Alert], Awaitable[object]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._alert = alert
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}

    async def answered(self, used: Iterable[BoundCredential], status: int) -> None:
        """A host has answered a request with these credentials; other statuses than success and refusal say nothing."""
        for each in used:
            if status in REFUSALS:
                await self._refused(each, status)
            elif 200 <= status < 400:
                await self._accepted(each)

    async def _refused(self, credential: BoundCredential, status: int) -> None:
        key, now = (credential.org, credential.name), self._clock()
        known = self._known.get(key)
        again = known is not None and known.credential == credential
        if known is not None and again and (known.told or now - known.at < QUIET):
            return
        self._known[key] = _Known(credential, at=now)
        text = (
            f"{_host(credential)} refuses the credential {credential.name!r} ({status}): "
            f"{mend(credential)}"
        )
        await self._alert(credential.org, Alert(REFUSED, text, about=credential.name))

    async def _accepted(self, credential: BoundCredential) -> None:
        key = credential.org, credential.name
        known = self._known.setdefault(key, _Known(credential))
        known.credential = credential
        if known.told:  # perhaps by the process before this one
            known.told = False
            await self._alert(credential.org, Alert(REFUSED, "", about=credential.name))


def mend(credential: BoundCredential) -> str:
    """The command that gives a credential another secret and changes nothing else."""
    words = ["postroom", "credential", "add", credential.name, "--host", _host(credential)]
    if credential.path != "/":
        words += ["--path", credential.path]
    header = f"{credential.header}: {credential.form}"
    if header != DEFAULT_HEADER:
        words += ["--header", header]
    for uid in credential.workers:
        words += ["--worker", uid]
    return shlex.join([*words, "--replace"])


def _host(credential: BoundCredential) -> str:
    """As `--host` takes it."""
    target = Target(credential.scheme, credential.host, credential.port)
    return target.authority if credential.scheme == "https" else target.origin
