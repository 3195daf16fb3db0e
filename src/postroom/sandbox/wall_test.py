"""A provider's trial: a real sandbox around the wall self-test. Only its outcome counts.

A program's version proves nothing: on some systems every start fails. The level is `enforced` only if the self-test ran
inside, reached no canary (by its own account and the host's), and reached the gateway socket. It is `partial` if the
provider's stated holes explain all that it reached, and `none` if they leave one unexplained.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from postroom.errors import SandboxUnavailable
from postroom.sandbox import selftest
from postroom.sandbox.bubblewrap_program import last_message
from postroom.sandbox.canary import CanaryServer
from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.output import tail
from postroom.sandbox.port import Capability, Level, SandboxProvider, SandboxSpec
from postroom.sandbox.selftest import KINDS, WallReport

HOLES = {
    "tcp": "programs that listen on loopback",
    "fastopen": "the same by TCP Fast Open",
    "socket": "unix sockets by their path, where file permissions allow",
    "file": "the existence and size of a file, never its content",
    "process": "names and command lines of the machine's processes",
    "kernel": "what the kernel shows to root alone",
}
"""The words for people, for each kind of hole that a partial wall may have."""

DEADLINE = 20.0
"""Seconds for all trials; one takes a fifth of a second on an idle machine."""
TRIES, LEAST = 3, 5.0
"""Trials of a provider while they are disturbed, and the seconds that one more must have."""

LATE = "the wall self-test did not end in time"
DISTURBED = "the wall could not be tested: others kept the canaries busy; the log says who"
AGAIN = "try again when there is less to do on this machine"


async def try_wall(provider: SandboxProvider) -> Capability:
    """The proven level of `provider` on this machine.

    A trial that others have disturbed proves nothing: it is repeated, as long as there is time for it.

    Raises:
        SandboxUnavailable: the sandbox did not start, or the self-test did not run.
    """
    ends = time.monotonic() + DEADLINE
    found = await _trial(provider, DEADLINE)
    for _ in range(TRIES - 1):
        left = ends - time.monotonic()
        if not found.doubtful or left < LEAST:
            break
        found = await _trial(provider, left)
    return found


async def _trial(provider: SandboxProvider, seconds: float) -> Capability:
    async with CanaryServer() as server:
        try:
            report = await self_test(provider, server, seconds)
        except TimeoutError:
            return Capability(provider.name, Level.NONE, LATE, AGAIN, doubtful=True)
        await server.settle()
        gateway, doubts = server.gateway_visits, server.doubts(report)
        visits = {kind for kind, count in server.visits.items() if count}
    unexplained = report.unexplained(provider.holes)
    if unexplained or visits - provider.holes:
        ways = ", ".join(unexplained) or "a canary, as the host saw"
        return _failed(provider, f"from inside, these could be reached: {ways}")
    if doubts:
        return Capability(provider.name, Level.NONE, DISTURBED, AGAIN, doubtful=True)
    if not report.gateway or not gateway:
        return _failed(provider, "a program inside could not reach the gateway socket")
    away = sum(not canary.reached for canary in report.canaries)
    detail = f"{away} canaries out of reach, the gateway socket in reach"
    if provider.holes:
        detail += f"; open: {', '.join(HOLES[kind] for kind in KINDS if kind in provider.holes)}"
    return Capability(provider.name, provider.states, detail)


async def self_test(
    provider: SandboxProvider, server: CanaryServer, seconds: float = DEADLINE
) -> WallReport:
    """The report of the wall self-test, run in a sandbox of `provider` against `server`.

    Raises:
        TimeoutError: it did not end in that many seconds.
        SandboxUnavailable: the sandbox did not start, or the self-test did not run.
    """
    workspace, log = server.folder / "workspace", server.folder / "log"
    workspace.mkdir()
    draft = SandboxSpec((), {}, "/", workspace, server.gateway, log)
    paths = provider.paths(draft)
    # A file, not an argument: others see arguments, and would know the secret.
    told = f"{paths.secrets}/canary"
    canaries = server.canaries(paths.gateway_socket)
    argv = (*SCRIPT, selftest.__file__, replace(canaries, secret="").to_json(), told)
    secret = {told: canaries.secret.encode()}
    spec = replace(draft, argv=argv, workdir=paths.workspace, secrets=secret)
    handle = await provider.start(spec)
    try:
        async with asyncio.timeout(seconds):
            await handle.wait()
    finally:
        await handle.stop(0)
    return _report(log)


def _report(log: Path) -> WallReport:
    output = tail(log, 256 * 1024)
    with suppress(ValueError, KeyError, TypeError, IndexError):
        return WallReport.from_json(output.splitlines()[-1])
    raise SandboxUnavailable(
        f"the wall self-test did not run in the sandbox: {last_message(output)}",
        remedy="install Postroom in a virtual environment of its own",
    )


def _failed(provider: SandboxProvider, detail: str) -> Capability:
    remedy = "do not run workers here; please report this as a security problem"
    return Capability(provider.name, Level.NONE, detail, remedy)
