"""A partial wall for macOS: the system's own sandbox, driven by a profile. Written, not tested on a Mac.

Apple calls `sandbox-exec` deprecated and keeps it; other agent sandboxes rely on it, too. The profile refuses
everything, then allows what a program needs to run, its folders, the gateway's socket and loopback. It hides the
machine's processes, but it has no namespace: loopback is the machine's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from postroom.errors import PostroomError
from postroom.sandbox import policy, python_home
from postroom.sandbox.limits import limited
from postroom.sandbox.port import Capability, Level, SandboxPaths, SandboxSpec
from postroom.sandbox.reaped import (
    ReapedHandle,
    local_paths,
    make_runtime,
    runtime_folder,
    start_reaped,
)
from postroom.sandbox.wall_test import try_wall

NAME = "seatbelt"
PROGRAM = Path("/usr/bin/sandbox-exec")
UNTESTED = "made from Apple's documents, and never run on a Mac by Postroom's tests"

READABLE = ("/System", "/usr", "/bin", "/sbin", "/Library/Frameworks", "/Library/Apple/System")
READABLE_FILES = (
    "/private/etc/localtime",
    "/private/etc/passwd",
    "/private/etc/hosts",
    "/dev/null",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class SeatbeltProvider:
    """Starts programs under `sandbox-exec`."""

    name = NAME
    states = Level.PARTIAL
    holes = frozenset({"tcp", "fastopen", "file"})
    covers = False
    shown = READABLE

    def __init__(self) -> None:
        self._proven = Level.NONE

    async def probe(self) -> Capability:
        """Start a real sandbox around the wall self-test; on a Mac only."""
        if sys.platform != "darwin":
            return self._none("seatbelt runs on macOS only", "choose another provider")
        if not PROGRAM.exists():
            return self._none(f"there is no {PROGRAM}", "use a macOS that has sandbox-exec")
        try:
            tried = await try_wall(self)
        except (PostroomError, OSError) as error:
            return self._none(str(error), "please report this with the output of sandbox-exec")
        self._proven = tried.level
        return Capability(NAME, tried.level, f"{tried.detail} ({UNTESTED})", tried.remedy)

    def paths(self, spec: SandboxSpec) -> SandboxPaths:
        """The host's own paths."""
        return local_paths(spec)

    async def start(self, spec: SandboxSpec) -> ReapedHandle:
        """Start `spec` under its profile (see `SandboxProvider.start`)."""
        policy.check(spec, self.paths(spec))
        python = python_home.folders()
        policy.check_code(spec, python)
        make_runtime(spec)
        command = (str(PROGRAM), "-p", profile(spec, python), *limited(spec, alone=False))
        return await start_reaped(spec, command, self._proven)

    def _none(self, detail: str, remedy: str) -> Capability:
        return Capability(NAME, Level.NONE, f"{detail} ({UNTESTED})", remedy)


def profile(spec: SandboxSpec, python: tuple[Path, ...]) -> str:
    """The sandbox profile (SBPL) for `spec`; a later rule wins over an earlier one."""
    shared = [str(mount.source.resolve()) for mount in spec.read_only]
    read = [*READABLE, *map(str, python), *shared]
    runtime = runtime_folder(spec)
    write = [spec.workspace, *([spec.state] if spec.state else [])]
    write += [runtime / name for name in ("secrets", "home", "state", "tmp")]
    writable = [str(folder.resolve()) for folder in write]
    rules = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        # The kernel looks paths up part by part; this shows that a file exists, not its content.
        "(allow file-read-metadata)",
        '(allow file-read* (literal "/"))',
        _rule("file-read*", "subpath", [*read, *writable]),
        _rule("file-read*", "literal", READABLE_FILES),
        _rule("file-map-executable", "subpath", [*read, *writable]),
        _rule("file-write*", "subpath", writable),
        _rule("file-read* file-write-data file-ioctl", "literal", DEVICES),
        *_gateway(spec.gateway_socket),
        # The sidecar and its agent speak over loopback, which is the machine's own.
        '(allow network-bind network-inbound (local tcp "localhost:*"))',
        '(allow network-outbound (remote tcp "localhost:*"))',
        _rule("network-bind network-inbound", "subpath", writable),
    ]
    return "\n".join(rules) + "\n"


def _gateway(socket: Path | None) -> list[str]:
    if socket is None:
        return []
    place = _quoted(str(socket.resolve()))
    return [f"(allow network-outbound (remote unix-socket (path-literal {place})))"]


def _rule(operations: str, kind: str, paths: list[str] | tuple[str, ...]) -> str:
    filters = " ".join(f"({kind} {_quoted(path)})" for path in paths)
    return f"(allow {operations} {filters})"


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
