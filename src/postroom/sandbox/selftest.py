"""The wall's self-test: inside a sandbox it tries every way out that the host names.

The sidecar runs it first and reports the result as its first event; a provider's probe runs it as a script by its file
name. So it imports the standard library only.

A canary is something on the host that a sandboxed program must not be able to reach; `postroom.sandbox.canary` opens
them. No traffic goes to an address that is not in the list. Each visit carries the secret of this test: other accounts
of the machine reach the host's canaries, too, and theirs must not count.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial

TIMEOUT = 0.5
"""Seconds to wait for one canary; a listener on the same machine answers in far less."""

IO_URING_SETUP = 425  # the same number on every architecture that has it
AF_VSOCK = 40
IPPROTO_MPTCP = 262
MSG_FASTOPEN = 0x20000000
PR_SET_DUMPABLE = 4
CLONE_NEWUSER = 0x10000000

KINDS = (
    *("tcp", "mptcp", "fastopen", "udp", "abstract", "socket", "file", "content", "process"),
    *("secret", "vsock", "io_uring", "kernel", "namespace"),
)
"""The ways out that the test tries.

mptcp, fastopen: TCP by other calls than a filter on connect(2) of TCP sockets sees.
file, content: the existence of a file of the host; its content.
secret: environment, memory or descriptors of a process that protects itself, as the sidecar does, seen from another
    one in the sandbox.
kernel: files of procfs for root alone.
namespace: a user namespace, in which a program would have every capability.
"""


@dataclass(frozen=True)
class Canaries:
    """The targets to try. All addresses are this machine's own.

    tcp, udp: (host, port); the UDP ones answer every datagram.
    abstract: names of abstract Unix sockets, without the leading NUL.
    sockets: paths of Unix sockets that must not be there.
    files: path to (device, inode) of host files and folders: a path counts as reached if that very inode is there.
    process: (pid, start time) of a host process, the start time as in proc_pid_stat(5) field 22.
    gateway: path, as seen inside, of the one socket that must be reachable; or its `host:port`.
    secret: what a visit carries, in hexadecimal.
    """

    tcp: tuple[tuple[str, int], ...] = ()
    udp: tuple[tuple[str, int], ...] = ()
    abstract: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    process: tuple[int, int] | None = None
    gateway: str = ""
    secret: str = ""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Canaries:
        """The inverse of `to_json`."""
        raw = json.loads(text)
        return cls(
            tcp=tuple((host, port) for host, port in raw["tcp"]),
            udp=tuple((host, port) for host, port in raw["udp"]),
            abstract=tuple(raw["abstract"]),
            sockets=tuple(raw["sockets"]),
            files={path: (device, inode) for path, (device, inode) in raw["files"].items()},
            process=None if raw["process"] is None else tuple(raw["process"]),
            gateway=raw["gateway"],
            secret=raw.get("secret", ""),
        )


@dataclass(frozen=True)
class CanaryResult:
    """Whether one canary was reached; `kind` names the way out, `target` the canary.

    silent: nothing answered, not even a refusal. So it is out of reach, unless its listener had no room left.
    """

    kind: str
    target: str
    reached: bool
    silent: bool = False


@dataclass(frozen=True)
class WallReport:
    """The outcome: every canary, and whether the gateway socket answered."""

    canaries: tuple[CanaryResult, ...]
    gateway: bool

    @property
    def reached(self) -> tuple[str, ...]:
        """The canaries that were reached, as `kind target`."""
        return self.unexplained(())

    @property
    def reached_kinds(self) -> frozenset[str]:
        """The kinds of the canaries that were reached."""
        return frozenset(canary.kind for canary in self.canaries if canary.reached)

    def unexplained(self, holes: Collection[str]) -> tuple[str, ...]:
        """The reached canaries whose kind is not among `holes`, as `kind target`."""
        found = (c for c in self.canaries if c.reached and c.kind not in holes)
        return tuple(f"{canary.kind} {canary.target}".strip() for canary in found)

    @property
    def holds(self) -> bool:
        """True if the gateway was reached and nothing else was."""
        return self.gateway and not self.reached

    def to_dict(self) -> dict[str, object]:
        """`{"holds", "gateway", "canaries": [{"kind", "target", "reached", "silent"}]}`."""
        canaries = [asdict(canary) for canary in self.canaries]
        return {"holds": self.holds, "gateway": self.gateway, "canaries": canaries}

    @classmethod
    def from_json(cls, text: str) -> WallReport:
        """The report that the script printed."""
        raw = json.loads(text)
        return cls(tuple(CanaryResult(**canary) for canary in raw["canaries"]), raw["gateway"])


def run(canaries: Canaries) -> WallReport:
    """Try every canary, those of the network in parallel; takes little more than `TIMEOUT`."""
    return WallReport(
        tuple(_results(canaries)), bool(canaries.gateway) and _gateway(canaries.gateway)
    )


def _gateway(address: str) -> bool:
    if address.startswith("/"):
        return _unix(address)
    host, _, port = address.rpartition(":")
    # A name may stand for several addresses, of both IP versions.
    return _attempt(
        lambda: socket.create_connection((host.strip("[]"), int(port)), TIMEOUT).close()
    )


def _results(canaries: Canaries) -> Iterator[CanaryResult]:
    secret = canaries.secret.encode()
    network = [
        (kind, host, port, way)
        for host, port in canaries.tcp
        for kind, way in (("tcp", _tcp), ("mptcp", _mptcp), ("fastopen", _fastopen))
    ]
    network += [("udp", host, port, _udp) for host, port in canaries.udp]
    outcomes = _together([partial(way, host, port, secret) for _, host, port, way in network])
    for (kind, host, port, _), (reached, silent) in zip(network, outcomes, strict=True):
        yield CanaryResult(kind, f"{host} {port}", reached, silent)
    for name in canaries.abstract:
        yield CanaryResult("abstract", name, _unix(f"\0{name}", secret))
    for path in canaries.sockets:
        yield CanaryResult("socket", path, _unix(path, secret))
    for path, inode in canaries.files.items():
        yield CanaryResult("file", path, _same_inode(path, inode))
        readable = _same_inode(path, inode) and _attempt(lambda: _open(path))  # noqa: B023
        yield CanaryResult("content", path, readable)
    if canaries.process is not None:
        yield CanaryResult("process", str(canaries.process[0]), _sees_process(*canaries.process))
    if sys.platform == "linux":
        yield CanaryResult("secret", "", _secret_shows())
    yield CanaryResult("vsock", "", _attempt(_vsock))
    yield CanaryResult("io_uring", "", _io_uring())
    yield CanaryResult("kernel", "", sys.platform == "linux" and _reads_kernel())
    yield CanaryResult("namespace", "", sys.platform == "linux" and _in_child(_splits_off))


def _together(actions: list[Callable[[], object]]) -> list[tuple[bool, bool]]:
    """Whether each succeeded, and whether it met silence, in parallel: some end only after `TIMEOUT`. An unexpected
    error counts as success, since it leaves the outcome unknown.
    """
    outcomes = [(True, False)] * len(actions)

    def attempt(index: int) -> None:
        try:
            actions[index]()
        except (TimeoutError, BlockingIOError):
            outcomes[index] = (False, True)
        except OSError:
            outcomes[index] = (False, False)

    threads = [threading.Thread(target=attempt, args=(index,)) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _attempt(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _tcp(host: str, port: int, secret: bytes, protocol: int = 0) -> None:
    with socket.socket(_family(host), socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(TIMEOUT)
        sock.connect((host, port))
        _attempt(lambda: sock.sendall(secret))


def _mptcp(host: str, port: int, secret: bytes) -> None:
    _tcp(host, port, secret, IPPROTO_MPTCP)


def _fastopen(host: str, port: int, secret: bytes) -> None:
    import select  # the other canaries need not wait for this import

    with socket.socket(_family(host), socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(secret, MSG_FASTOPEN, (host, port))
        except BlockingIOError:
            _, connected, _ = select.select([], [sock], [], TIMEOUT)
            if not connected:
                raise
        if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(number, os.strerror(number))
        _attempt(lambda: sock.sendall(secret))


def _udp(host: str, port: int, secret: bytes) -> None:
    with socket.socket(_family(host), socket.SOCK_DGRAM) as sock:
        sock.settimeout(TIMEOUT)
        sock.connect((host, port))
        sock.send(secret)
        sock.recv(64)


def _unix(address: str, secret: bytes = b"") -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(TIMEOUT)
        try:
            sock.connect(address)
        except BlockingIOError:
            return True  # it is there, and has no room for one more
        except OSError:
            return False
        _attempt(lambda: sock.sendall(secret))
        return True


def _same_inode(path: str, inode: tuple[int, int]) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116 (pathlib costs import time here)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == inode


def start_time(pid: int) -> int:
    """Start of process `pid` in clock ticks since boot; it distinguishes processes with the same number.

    Raises:
        OSError: no such process, or no procfs.
    """
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        # The name in field 2 may hold blanks and brackets; the fields after it are counted from 3.
        return int(file.read().rpartition(")")[2].split()[22 - 3])


def _sees_process(pid: int, started: int) -> bool:
    try:
        return start_time(pid) == started
    except OSError:
        return False


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _secret_shows() -> bool:
    """Whether another process of the sandbox can look into this one, which has called `protect`."""
    return _in_child(lambda: _looks_into(f"/proc/{os.getppid()}"))


def _in_child(look: Callable[[], bool]) -> bool:
    """The result of `look` in a process of its own; True if unknown."""
    child = os.fork()
    if child == 0:
        os._exit(1 if look() else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _looks_into(process: str) -> bool:
    if any(_attempt(lambda: _open(f"{process}/{name}")) for name in ("environ", "mem")):  # noqa: B023
        return True
    try:
        descriptors = os.listdir(f"{process}/fd")  # noqa: PTH208 (pathlib costs import time here)
    except OSError:
        return False
    return any(_attempt(lambda: os.readlink(f"{process}/fd/{n}")) for n in descriptors)  # noqa: B023, PTH115


def protect() -> None:
    """Keep other processes of the same user from looking into this one, as the sidecar does; raises OSError."""
    import ctypes  # a process that is protected already need not wait for this import

    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError("the kernel refuses to protect this process")


def _vsock() -> None:
    # Creating one is the whole test, without connecting. No network namespace prevents it.
    socket.socket(AF_VSOCK, socket.SOCK_STREAM).close()


def _io_uring() -> bool:
    import ctypes  # the other canaries need not wait for this import

    libc = ctypes.CDLL(None, use_errno=True)
    # Makes no ring: with a null pointer a kernel that allows the call answers EFAULT.
    libc.syscall(IO_URING_SETUP, 1, None)
    return ctypes.get_errno() not in {errno.EPERM, errno.ENOSYS}


def kernel_files() -> list[str]:
    """The files at the top of procfs that only root may read."""
    with os.scandir("/proc") as entries:
        return [e.path for e in entries if not e.name.isdigit() and _is_closed(e)]


def _is_closed(entry: os.DirEntry[str]) -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    return stat.S_ISREG(mode) and not mode & stat.S_IROTH


def _reads_kernel() -> bool:
    return any(_attempt(lambda: _open(path)) for path in kernel_files())  # noqa: B023


def _splits_off() -> bool:
    import ctypes  # the other canaries need not wait for this import

    return bool(ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0)


def main(argv: list[str]) -> None:
    """Script entry: the canaries as JSON and the file that has their secret; the report goes to stdout as JSON."""
    canaries = Canaries.from_json(argv[0])
    secret = ""  # a sandbox that is none may not have the file: what it reaches is to be told all the same
    with suppress(OSError), open(argv[1], encoding="ascii") as file:  # noqa: PTH123 (pathlib costs import time here)
        secret = file.read()
    protect()
    report = run(replace(canaries, secret=secret))
    sys.stdout.write(json.dumps(report.to_dict()) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
