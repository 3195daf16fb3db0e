"""The system call filter of the sandbox, as a classic BPF program made without any library.

Namespaces leave four holes that only a filter on system calls closes (seccomp(2)):

* AF_VSOCK talks to the hypervisor and is bound to no network namespace; so are a dozen rarer socket
  families. Only Unix, IPv4, IPv6 and netlink sockets may be made.
* io_uring makes sockets without the socket call, so past this filter. It is refused as a whole.
* The kernel's keyrings are shared with the host's processes of the same user. They are refused.
* Foreign calling conventions number the calls differently, so past this filter. A program of another
  architecture is killed; the x32 convention of x86_64 is refused.

The program is a list of 8-byte instructions (`struct sock_filter`, linux/filter.h) that look at one
`struct seccomp_data` (linux/seccomp.h): number at offset 0, architecture at 4, the low half of the
first argument at 16 (both supported architectures are little-endian).
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from dataclasses import dataclass

from postroom.errors import SandboxUnavailable

# Opcodes (linux/bpf_common.h): load a 32-bit word, jump if equal / if greater or equal, return.
LOAD, JUMP_EQ, JUMP_GE, RETURN = 0x20, 0x15, 0x35, 0x06

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000

OFFSET_NUMBER, OFFSET_ARCHITECTURE, OFFSET_FIRST_ARGUMENT = 0, 4, 16
X32_BIT = 0x40000000

ALLOWED_FAMILIES = (
    int(socket.AF_UNIX),
    int(socket.AF_INET),
    int(socket.AF_INET6),
    16,  # AF_NETLINK: the C library asks it for the local addresses
)


@dataclass(frozen=True)
class Architecture:
    """What differs between machines: the audit number (linux/audit.h) and the call numbers."""

    audit: int
    x32: bool
    makes_sockets: tuple[int, ...]
    refused: tuple[int, ...]


ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        x32=True,
        makes_sockets=(41, 53),  # socket, socketpair
        refused=(425, 426, 427, 248, 249, 250),  # io_uring_*; add_key, request_key, keyctl
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        x32=False,
        makes_sockets=(198, 199),
        refused=(425, 426, 427, 217, 218, 219),
    ),
}
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


def program(machine: str | None = None) -> bytes:
    """The filter for `machine` (this one, if None), as bubblewrap's `--seccomp` reads it.

    Raises:
        SandboxUnavailable: the machine's call numbers are not known here.
    """
    name = (machine or platform.machine()).lower()
    architecture = ARCHITECTURES.get(_ALIASES.get(name, name))
    if architecture is None:
        raise SandboxUnavailable(
            f"there is no system call filter for the processor type {name!r}",
            remedy="run workers on x86_64 or aarch64",
        )
    return b"".join(_instructions(architecture))


def _instructions(arch: Architecture) -> list[bytes]:
    denied, odd_family = ERRNO | errno.EPERM, ERRNO | errno.EAFNOSUPPORT
    code: list[bytes] = []
    # 1. Another architecture: its numbers mean other calls, so nothing below could be trusted.
    code += [_load(OFFSET_ARCHITECTURE), _jump(JUMP_EQ, arch.audit, 1, 0), _return(KILL_PROCESS)]
    # 2. x32 has the same architecture number and marks its calls by one bit.
    code += [_load(OFFSET_NUMBER)]
    if arch.x32:
        code += [_jump(JUMP_GE, X32_BIT, 0, 1), _return(denied)]
    # 3. Calls refused as a whole: io_uring and the keyrings.
    for number in arch.refused:
        code += [_jump(JUMP_EQ, number, 0, 1), _return(denied)]
    # 4. Any call but socket and socketpair is allowed; those two jump over the "allow" to step 5.
    count = len(arch.makes_sockets)
    for index, number in enumerate(arch.makes_sockets):
        code += [_jump(JUMP_EQ, number, count - index, 0)]
    code += [_return(ALLOW)]
    # 5. Their first argument is the family, an int: the kernel looks at the low half only, as we do.
    code += [_load(OFFSET_FIRST_ARGUMENT)]
    for family in ALLOWED_FAMILIES:
        code += [_jump(JUMP_EQ, family, 0, 1), _return(ALLOW)]
    return [*code, _return(odd_family)]


def _instruction(code: int, if_true: int, if_false: int, k: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _load(offset: int) -> bytes:
    return _instruction(LOAD, 0, 0, offset)


def _jump(kind: int, k: int, if_true: int, if_false: int) -> bytes:
    return _instruction(kind, if_true, if_false, k)


def _return(verdict: int) -> bytes:
    return _instruction(RETURN, 0, 0, verdict)
