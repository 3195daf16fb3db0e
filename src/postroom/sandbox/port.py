"""The sandbox port: its records, and the promises of each provider.

A provider starts one program (the sidecar) behind a wall of a stated level; docs/architecture.md, The two walls. The
order of calls is always: `probe` once, then for each worker `paths` (where will the program find its things?), then
`start`.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable


class Level(enum.StrEnum):
    """The strength of a wall, as people see it and policy demands it."""

    ENFORCED = "enforced"
    """Nothing outside can be reached but the gateway socket; proven by canaries."""
    PARTIAL = "partial"
    """Some ways out are closed; the open ones are stated in `Capability.detail`."""
    NONE = "none"
    """A plain process with the rights of the user who runs Postroom."""

    def weaker_than(self, other: Level) -> bool:
        """Whether it holds back less than `other`."""
        strongest_first = list(Level)
        return strongest_first.index(self) > strongest_first.index(other)


@dataclass(frozen=True)
class Capability:
    """The abilities of one provider on this machine, found by trying.

    `detail` says in one sentence what the trial showed; `remedy` what a person can do ("" for nothing). `doubtful`: the
    trial was disturbed, so that another one may end better.
    """

    provider: str
    level: Level
    detail: str
    remedy: str = ""
    doubtful: bool = False


@dataclass(frozen=True)
class Mount:
    """A host file or folder (`source`) that appears read-only at `target` inside.

    judged: `source` is a real name (`never.real_name`) that was judged: it is shown only if it leads through no link.
    """

    source: Path
    target: str
    judged: bool = False


@dataclass(frozen=True)
class Limits:
    """Resource limits of a sandbox, for all its processes together; None leaves the host's own limit.

    docs/security.md, Limits, says how each is kept and when an excess is noticed.

    memory: bytes.
    cpu_percent: share of one processor.
    disk: bytes of the folders of the host that it may write; each entry counts as 4 KiB at least.
    wall_seconds: seconds from start to end.
    """

    memory: int | None = None
    processes: int | None = None
    cpu_percent: int | None = None
    disk: int | None = None
    wall_seconds: float | None = None


@dataclass(frozen=True)
class SandboxSpec:
    """One program to run, and all that it may see.

    argv: the program and its arguments. They show in process lists: no secret belongs here.
    env: its whole environment; it inherits nothing. No secret belongs here either.
    workdir: its working folder, as named inside.
    workspace: the one host folder that it may write.
    gateway_socket: the host's Unix socket that is its only way out; must exist at start. None: no way out at all.
    stderr_log: host file for its stdout and stderr (bounded, see `output`).
    state: a second writable host folder, for the sidecar.
    read_only: other parts of the host that it may read.
    judged: `workspace` is a real name that was judged, as with `Mount.judged`.
    covered: paths below the workspace, relative to it, that it may read and not write.
    secrets: path inside, directly in `SandboxPaths.secrets`, to content. Each becomes a file of mode 0600 that the
        program
        may empty and unlink. With a wall it is in memory, behind a descriptor that the program inherits: no secret is
        in argv, the environment or any host file.
    ports: TCP ports to listen on and connect to, where the wall needs a list (`SandboxPaths.ports`).
    group: folder of the control group that its outermost process joins first (`postroom.sandbox.cgroups`); None where
        the provider sets its own limits.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str
    workspace: Path
    gateway_socket: Path | None
    stderr_log: Path
    state: Path | None = None
    read_only: tuple[Mount, ...] = ()
    judged: bool = False
    covered: tuple[str, ...] = ()
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    ports: tuple[int, ...] = ()
    group: Path | None = None


@dataclass(frozen=True)
class SandboxPaths:
    """The places of the program's things, so that argv and env can name them.

    With a wall these are constants; without one they are the host's own paths. `mounts` maps each `Mount.target` of the
    spec to the path that works inside. `ports` are free TCP ports for a program that may not choose its own: new ones
    at each call, to be repeated in the spec; empty for a free choice. `python` is the interpreter that has Postroom.

    Without one in the spec `gateway_socket` is "". A sandbox on another machine has none either: it dials
    `gateway_address` (`host:port`) by TLS, trusting
    `gateway_ca` (PEM). Its A2A server listens on loopback port `a2a_port`, since its state folder is out of reach, too.
    Its execd, if any, listens on loopback port `execd_port`, with the token in the file `execd_token`.
    """

    workspace: str
    state: str
    gateway_socket: str
    secrets: str
    home: str
    mounts: Mapping[str, str]
    tmp: str = "/tmp"  # noqa: S108 (with a mount namespace it is the sandbox's own)
    ports: tuple[int, ...] = ()
    python: str = sys.executable
    gateway_address: str = ""
    gateway_ca: str = ""
    a2a_port: int = 0
    execd_port: int = 0
    execd_token: str = ""


@dataclass(frozen=True)
class ExitStatus:
    """How the sandboxed program ended.

    code: its exit status; 128 + N when signal N ended it, as shells count.
    log_error: why its output could not be written to the log, or "".
    exceeded: the exceeded limit that ended it, for people, or "".
    """

    code: int
    log_error: str = ""
    exceeded: str = ""

    @property
    def signal(self) -> int | None:
        """The signal that ended the program, or None."""
        return self.code - 128 if self.code > 128 else None


class SandboxHandle(Protocol):
    """One running sandbox.

    It ends when its first process ends, when it is stopped, and when the thread that started it ends (so with the
    process that called `start`, even by SIGKILL).
    """

    @property
    def pid(self) -> int:
        """Host process id of the outermost process of the sandbox; 0 where it runs on another machine."""
        ...

    @property
    def level(self) -> Level:
        """The level that was proven before its start; `none` without proof."""
        ...

    async def wait(self) -> ExitStatus:
        """Wait for the end; afterwards no process of the sandbox is left. May be called often.

        Raises:
            SandboxUnavailable: the wall could not be built, so the program never ran.
        """
        ...

    async def stop(self, grace: float) -> ExitStatus:
        """End it: SIGTERM to its first process and, after `grace` seconds, `kill`. Idempotent."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to all of its processes at once; `wait` returns when they are gone."""
        ...


@dataclass(frozen=True)
class Inward:
    """The way to a worker's A2A server on another machine: URL before its paths, and headers to send."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


@runtime_checkable
class FarHandle(Protocol):
    """The further abilities of a `SandboxHandle` whose state folder is on another machine."""

    async def inward(self) -> Inward:
        """The way to the worker's A2A server.

        Raises:
            SandboxUnavailable: the sandbox's host does not say.
        """
        ...


@runtime_checkable
class FarProvider(Protocol):
    """The further abilities of a `SandboxProvider` that starts its sandboxes on other machines."""

    def unenforced(self, limits: Limits) -> tuple[str, ...]:
        """Those of `limits`, in the template's words, that nothing there keeps."""
        ...

    async def start(self, spec: SandboxSpec) -> SandboxHandle:
        """See `SandboxProvider.start`."""
        ...


class SandboxProvider(Protocol):
    """One way to build the wall."""

    @property
    def name(self) -> str:
        """Its name in templates and options."""
        ...

    @property
    def states(self) -> Level:
        """The level that it is built for, which is the most that it can prove."""
        ...

    @property
    def holes(self) -> frozenset[str]:
        """The ways out that it leaves open, as kinds of canaries; empty for `enforced`.

        If a canary of another kind is reached, the wall does not hold at all.
        """
        ...

    @property
    def covers(self) -> bool:
        """Whether it can keep a part of the workspace read-only (`SandboxSpec.covered`)."""
        ...

    @property
    def shown(self) -> tuple[str, ...]:
        """Folders of the host that every program sees at their own path, without a mount."""
        ...

    async def probe(self) -> Capability:
        """Find out its abilities here, by starting a real sandbox.

        Never raises for a machine that cannot: the level is then `none` and `remedy` says what to do.
        """
        ...

    def paths(self, spec: SandboxSpec) -> SandboxPaths:
        """The places where the program of `spec` will find its things.

        It uses only the host folders and mounts of `spec`. So a caller makes a draft, asks, and fills in argv, env,
        workdir and secrets with `dataclasses.replace`.
        """
        ...

    async def start(self, spec: SandboxSpec) -> SandboxHandle:
        """Start the program behind the wall.

        Call it from the thread of a loop that lives as long as the sandbox: the kernel ties the
        sandbox's life to that *thread* (PR_SET_PDEATHSIG, prctl(2)).

        Raises:
            InvalidInput: the spec would open the wall, or names what does not exist.
            SandboxUnavailable: the provider cannot start anything here.
        """
        ...
