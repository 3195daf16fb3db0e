"""Another account of this machine that touches the canaries of one post room: `stranger.py PID touch|hold PORT`.

The root part finds the sockets of process PID every 2 ms, as anybody could by /proc/net; the other part, with a user
id of its own, connects to them. So it meets only this process's sockets, and nobody else's on the machine. It prints a
line when it has begun, and when it is told to end how often it got through.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen

STRANGER = 12345
MOST_HELD = 400


def sockets(pid: int, but: int) -> set[tuple[str, str, int]]:
    """What process `pid` listens on, except for port `but`: kind, address or name, port."""
    own = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            name = str(Path(entry.path).readlink())
            if name.startswith("socket:["):
                own.add(name[8:-1])
    found = set()
    for line in Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]:
        fields = line.split()
        if fields[6] in own and len(fields) > 7 and fields[7].startswith("@postroom-canary"):
            found.add(("unix", fields[7], 0))
    for kind, state in (("tcp", "0A"), ("udp", "07")):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in own and fields[3] == state:
                address, port = fields[1].split(":")
                if int(port, 16) == but:
                    continue
                host = socket.inet_ntoa(bytes.fromhex(address)[::-1])
                found.add((kind, host, int(port, 16)))
    return found


def look(pid: int, but: int, out: int) -> None:
    while True:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.write(out, json.dumps(sorted(sockets(pid, but))).encode() + b"\n")
        if select.select([sys.stdin], [], [], 0.002)[0]:
            return


def touch(kind: str, name: str, port: int) -> socket.socket:
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    sock.setblocking(False)
    with suppress(BlockingIOError):
        sock.connect(f"\0{name[1:]}" if kind == "unix" else (name, port))
    with suppress(OSError):
        sock.send(b"a stranger without the secret")
    return sock


def visit(lines: int, holds: bool) -> None:
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    touched, held = 0, []
    for line in os.fdopen(lines):
        for kind, name, port in json.loads(line):
            for _ in range(20 if holds else 1):
                with suppress(OSError):
                    held.append(touch(kind, name, port))
                    touched += 1
        while len(held) > (MOST_HELD if holds else 0):
            held.pop(0).close()
    sys.stdout.write(f"{touched}\n")
    sys.stdout.flush()


def main(pid: int, how: str, but: int) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        visit(reading, how == "hold")
        os._exit(0)
    os.close(reading)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    look(pid, but, writing)
    os.close(writing)
    os.waitpid(child, 0)


class Stranger:
    """The process, from outside."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    def ends(self) -> int:
        """End it; how often it got through."""
        return int(self._process.communicate("\n", timeout=30)[0].split()[-1])


@contextmanager
def stranger(pid: int, how: str = "touch", but: int = 0) -> Generator[Stranger]:
    """Such an account at work on the sockets of process `pid`, except for port `but`; needs root."""
    with Popen(
        [sys.executable, __file__, str(pid), how, str(but)], stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield Stranger(process)
        finally:
            if process.poll() is None:
                process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
