"""The sandbox provider for OpenSandbox: a container per worker, whose only way out is the gateway's TLS address."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from postroom.errors import PostroomError, SandboxUnavailable
from postroom.observe import get_logger
from postroom.protocol import execd
from postroom.sandbox import policy
from postroom.sandbox.canary import CanaryServer
from postroom.sandbox.opensandbox import upload
from postroom.sandbox.opensandbox.handle import OpenSandboxHandle
from postroom.sandbox.opensandbox.remote import (
    A2A_PORT,
    CODE,
    EXECD_TOKEN,
    HOME,
    MOUNTS,
    NAME,
    PORTS,
    SECRETS,
    STATE,
    TMP,
    WORKSPACE,
    Remote,
)
from postroom.sandbox.opensandbox.server import (
    ENFORCING,
    create,
    load,
    remove,
    remove_stale,
    sdk_errors,
)
from postroom.sandbox.output import OutputLog
from postroom.sandbox.port import Capability, Level, Limits, SandboxPaths, SandboxSpec
from postroom.sandbox.selftest import Canaries, WallReport
from postroom.sandbox.wall_test import AGAIN, DISTURBED

if TYPE_CHECKING:
    from opensandbox import Sandbox
    from opensandbox.models.execd import Execution, RunCommandOpts
    from opensandbox.models.filesystem import WriteEntry

log = get_logger(__name__)

WEAKER = frozenset({"vsock", "io_uring", "secret", "kernel", "namespace"})
"""Kinds of canaries that a container may reach although its network is closed: a partial wall."""

CONFIGURE = (
    "set POSTROOM_OPENSANDBOX_URL and POSTROOM_GATEWAY_LISTEN; see docs/operating.md, OpenSandbox"
)
BAD_REQUEST = 400
CANARY = f"{SECRETS}/canary"
"""The file of the self-test's secret: an argument would show it to others."""

TRIAL_DEADLINE = 30.0
"""Seconds that the self-test has; each canary that does not answer costs it half a second."""


class OpenSandboxProvider:
    """Starts workers on an OpenSandbox server.

    Args:
        remote: None without a configured server.
    """

    name = NAME
    states = Level.ENFORCED
    covers = False

    def __init__(self, remote: Remote | None) -> None:
        self._remote = remote
        self._proven = Level.NONE
        self.holes: frozenset[str] = frozenset()
        self.shown: tuple[str, ...] = ()  # its folders are the image's

    async def probe(self) -> Capability:
        """Start a real container with the self-test in it; remove what earlier runs have left."""
        if self._remote is None:
            return self._none("no OpenSandbox server is configured", CONFIGURE)
        try:
            await load()
            if removed := await remove_stale(self._remote):
                log.info("%d sandboxes of an earlier run were removed", removed)
            capability = await self._try(self._remote)
        except PostroomError as error:
            return self._none(error.message, error.remedy)
        self._proven = capability.level
        return capability

    def paths(self, spec: SandboxSpec) -> SandboxPaths:
        """The same paths in every container."""
        remote = self._configured()
        return SandboxPaths(
            workspace=WORKSPACE,
            state=STATE,
            gateway_socket="",
            secrets=SECRETS,
            home=HOME,
            mounts={mount.target: f"{MOUNTS}{mount.target}" for mount in spec.read_only},
            tmp=TMP,
            python=remote.python,
            gateway_address=remote.gateway,
            gateway_ca=remote.gateway_ca,
            a2a_port=A2A_PORT,
            ports=PORTS,
            execd_port=execd.PORT,
            execd_token=EXECD_TOKEN,
        )

    def unenforced(self, limits: Limits) -> tuple[str, ...]:
        """The container bounds memory and CPU only."""
        found = ["processes"] if limits.processes else []
        return tuple(found + (["disk_mb"] if limits.disk else []))

    async def start(self, spec: SandboxSpec) -> OpenSandboxHandle:
        """Start `spec` in a container of its own (see `SandboxProvider.start`)."""
        remote, paths = self._configured(), self.paths(spec)
        policy.check(spec, paths)
        await load()
        files = await asyncio.to_thread(upload.entries, spec, paths)
        sandbox = await create(remote, spec.limits)
        try:
            with sdk_errors("starting a worker in a sandbox"):
                await _fill(sandbox, files, [paths.workspace])
                token = await _token(sandbox)
                await sandbox.files.write_files(upload.secrets(spec, token))
                command = await _run(sandbox, spec)
            output = OutputLog(spec.stderr_log)
        except BaseException:
            await remove(sandbox, remote.request)
            raise
        return OpenSandboxHandle(sandbox, command, output, self._proven, remote)

    async def _try(self, remote: Remote) -> Capability:
        async with CanaryServer() as server:
            report = await self._self_test(remote, server.canaries(remote.gateway))
            await server.settle()
            doubts = server.doubts(report)
            visits = frozenset(kind for kind, count in server.visits.items() if count)
        found = (report.reached_kinds | visits) - WEAKER
        if found:
            ways = ", ".join(report.unexplained(WEAKER)) or "a canary, as the host saw"
            return self._none(
                f"its egress control reports that it holds, but the container could reach: {ways}",
                "do not run workers there; check the network of its containers",
            )
        if doubts:
            return Capability(NAME, Level.NONE, DISTURBED, AGAIN, doubtful=True)
        if not report.gateway:
            return self._none(
                f"a container could not reach the gateway at {remote.gateway}",
                "check that POSTROOM_GATEWAY_ADDRESS leads there, and that no firewall is in between",
            )
        self.holes = report.reached_kinds
        away = sum(not canary.reached for canary in report.canaries)
        detail = f"{away} canaries out of reach, the gateway in reach, egress control {ENFORCING}"
        if self.holes:
            detail += f"; its containers leave open: {', '.join(sorted(self.holes))}"
        return Capability(NAME, Level.PARTIAL if self.holes else Level.ENFORCED, detail)

    async def _self_test(self, remote: Remote, canaries: Canaries) -> WallReport:
        from opensandbox.models.filesystem import WriteEntry

        sandbox = await create(remote, Limits())
        try:
            with sdk_errors("the self-test in a sandbox"):
                secret = WriteEntry(
                    path=CANARY, data=canaries.secret.encode(), mode=upload.SECRET_MODE
                )
                await _fill(sandbox, [*upload.code_entries(), secret], [])
                told = replace(canaries, secret="").to_json()
                words = [remote.python, "-P", "-m", "postroom.sandbox.selftest", told, CANARY]
                options = _options({"PYTHONPATH": CODE}, TMP, TRIAL_DEADLINE)
                async with asyncio.timeout(TRIAL_DEADLINE + remote.request):
                    done = await _command(sandbox, words, options)
        finally:
            await remove(sandbox, remote.request)
        try:
            return WallReport.from_json(done.logs.stdout[-1].text)
        except (ValueError, KeyError, TypeError, IndexError):
            said = done.logs.stderr[-1].text if done.logs.stderr else ""
            raise SandboxUnavailable(
                f"the self-test did not run in the image {remote.image}: {said or done.error}",
                remedy="the image needs Python and what the sidecar imports: docs/operating.md, OpenSandbox",
            ) from None

    def _configured(self) -> Remote:
        if self._remote is None:
            raise SandboxUnavailable("no OpenSandbox server is configured", remedy=CONFIGURE)
        return self._remote

    def _none(self, detail: str, remedy: str) -> Capability:
        return Capability(NAME, Level.NONE, detail, remedy)


async def _fill(sandbox: Sandbox, files: list[WriteEntry], further: list[str]) -> None:
    """Make the folders, then write the files."""
    from opensandbox.models.filesystem import WriteEntry

    wanted = [*upload.FOLDERS, *further]
    folders = [WriteEntry(path=path, mode=upload.FOLDER_MODE) for path in wanted]
    await sandbox.files.create_directories(folders)
    await sandbox.files.write_files(files)


async def _token(sandbox: Sandbox) -> str:
    """The token of the container's execd, "" without one."""
    endpoint = await sandbox.get_endpoint(execd.PORT)
    headers = {name.lower(): text for name, text in (endpoint.headers or {}).items()}
    return headers.get(execd.TOKEN_HEADER.lower(), "")


async def _run(sandbox: Sandbox, spec: SandboxSpec) -> str:
    """Start the program in the background; return the id of the command."""
    options = _options({**spec.env, "PYTHONPATH": CODE}, spec.workdir)
    options.background = True
    started = await _command(sandbox, list(spec.argv), options)
    if not started.id:
        raise SandboxUnavailable("execd started the sidecar and returned no id for it")
    return started.id


async def _command(sandbox: Sandbox, words: list[str], options: RunCommandOpts) -> Execution:
    """Run a program by its words; an execd that takes text only gets them quoted."""
    from opensandbox.exceptions import SandboxApiException

    try:
        return await sandbox.commands.run(words, opts=options)
    except SandboxApiException as error:
        if error.status_code != BAD_REQUEST:
            raise
        return await sandbox.commands.run(f"exec {shlex.join(words)}", opts=options)


def _options(env: Mapping[str, str], workdir: str, seconds: float | None = None) -> RunCommandOpts:
    from opensandbox.models.execd import RunCommandOpts

    timeout = None if seconds is None else timedelta(seconds=seconds)
    return RunCommandOpts(envs=dict(env), working_directory=workdir, timeout=timeout)
