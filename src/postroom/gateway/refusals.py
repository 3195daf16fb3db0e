"""Credentials that their host refuses: one alert for each, with the command that mends it, until it is accepted again.

Only the gateway can tell: the worker never has the key, and its program says what it likes.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from postroom.gateway.credentials import DEFAULT_HEADER, BoundCredential
from postroom.protocol.alerts import Alert
from postroom.protocol.egress import Target

REFUSED = "credential-refused"
"""Kind of the alert; its `about` is the name of the credential."""

REFUSALS = (401, 403)
"""Statuses by which a host refuses a credential."""

QUIET = 60.0
"""Seconds between two alerts about one credential: some requests of a worker may be refused, and others not."""


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
