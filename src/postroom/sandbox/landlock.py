"""A partial wall for Linux without user namespaces: Landlock for files and TCP, seccomp for the rest.

The program sees the host's paths and processes. It may read only system folders and the spec's mounts, and write only
its workspace, its state and a private folder. By TCP it may connect only to the spec's ports, for the sidecar's local
API and the agent's way out; so it also reaches whatever answers on such a port, on any host. It may listen on a port
that the kernel picks (listen(2) without bind(2)), and every machine that reaches this one can connect to that. Unix
sockets with a path are open where file permissions are: Landlock cannot close them.

The real root loses its capabilities but still owns root's files: only Landlock stands before them. If this root may
mount, files of procfs for root alone are covered.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import replace
from pathlib import Path

from postroom.errors import PostroomError, SandboxUnavailable
from postroom.sandbox import confine, kernel, policy, python_home, seccomp
from postroom.sandbox.arguments import SHOWN
from postroom.sandbox.limits import SCRIPT, limited
from postroom.sandbox.port import Capability, Level, SandboxPaths, SandboxSpec
from postroom.sandbox.reaped import (
    ReapedHandle,
    local_paths,
    make_runtime,
    runtime_folder,
    start_reaped,
)
from postroom.sandbox.wall_test import try_wall

NAME = "landlock"
OLDEST = 6
"""The first version of Landlock that blocks signals and abstract sockets."""

PORTS = 2
"""The number of TCP ports that a sidecar needs: its local API, and the agent's way out."""
LOWEST_PORT, HIGHEST_PORT = 15_000, 32_000
"""Below the kernel's own range, so that none of its ports is taken or reached."""

READABLE = (*SHOWN, "/proc")
"""Of the system. /proc, since programs look themselves up there; of other processes it shows what `ps` shows."""
READABLE_ETC = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

PORT_HOLE = (
    "TCP to whatever answers on one of its own ports, on any host, and from whoever connects to it"
)


class LandlockProvider:
    """Starts programs behind Landlock."""

    name = NAME
    states = Level.PARTIAL
    covers = False
    shown = SHOWN

    def __init__(self) -> None:
        closed = os.geteuid() != 0 or kernel.may_mount()
        self.holes = frozenset({"socket", "file", "process", *([] if closed else ["kernel"])})
        self._proven = Level.NONE

    async def probe(self) -> Capability:
        """Start a real sandbox around the wall self-test."""
        found = confine.version()
        if found < OLDEST:
            capability = self._none(
                f"the kernel has Landlock version {found}, {OLDEST} is needed"
                if found
                else "the kernel has no Landlock, or it is switched off",
                "run Linux 6.12 or later with landlock in the kernel's `lsm=` list",
            )
        else:
            capability = await self._try()
        self._proven = capability.level
        return capability

    async def _try(self) -> Capability:
        try:
            tried = await try_wall(self)
        except PostroomError as error:
            return self._none(error.message, error.remedy)
        except OSError as error:
            return self._none(str(error), "run Postroom where it may start programs")
        if tried.level is Level.NONE:
            return tried
        return Capability(NAME, tried.level, f"{tried.detail}, {PORT_HOLE}", tried.remedy)

    def paths(self, spec: SandboxSpec) -> SandboxPaths:
        """The host's own paths, and free ports."""
        return replace(local_paths(spec), ports=free_ports(PORTS))

    async def start(self, spec: SandboxSpec) -> ReapedHandle:
        """Start `spec` behind Landlock (see `SandboxProvider.start`)."""
        policy.check(spec, local_paths(spec))
        python = python_home.folders()
        policy.check_code(spec, python)
        code = seccomp.program(shared=True)
        make_runtime(spec)
        hidden = kernel.hidden() if kernel.may_mount() else {}
        rules = {**rules_for(spec, python), "ports": spec.ports, "filter": code.hex()}
        rules["hidden"] = hidden
        script = (*SCRIPT, confine.__file__, json.dumps(rules), "--")
        command = (*script, *limited(spec, alone=False))
        return await start_reaped(spec, command, self._proven, memory=True)

    def _none(self, detail: str, remedy: str) -> Capability:
        return Capability(NAME, Level.NONE, detail, remedy)


def rules_for(spec: SandboxSpec, python: tuple[Path, ...]) -> dict[str, list[str]]:
    """The existing paths that the program may read, write, use as a device, and list without reading."""
    runtime = runtime_folder(spec)
    shared = [mount.source.resolve() for mount in spec.read_only]
    write = [spec.workspace, *([spec.state] if spec.state else [])]
    write += [runtime / name for name in ("secrets", "home", "state", "tmp")]
    return {
        "read": _present([*READABLE, *READABLE_ETC, *python, *shared]),
        "write": [str(folder.resolve()) for folder in write],
        "device": _present(DEVICES),
        # Python looks for the packages' names in the folders around a source checkout's packages, so those are listed.
        "names": [str(package.parent) for package in python_home.PACKAGES],
    }


def _present(paths: list[str | Path] | tuple[str, ...]) -> list[str]:
    return [str(path) for path in paths if os.path.exists(path)]  # noqa: PTH110 (texts and paths)


def free_ports(count: int) -> tuple[int, ...]:
    """Free TCP ports of this machine at this moment.

    Raises:
        SandboxUnavailable: hardly any is free.
    """
    found: list[int] = []
    for _ in range(100 * count):
        port = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
        if port not in found and _is_free(port):
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise SandboxUnavailable(
        "the sidecar finds no free TCP port",
        remedy=f"free some from {LOWEST_PORT} to {HIGHEST_PORT}",
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("", port))
        except OSError:
            return False
    return True
