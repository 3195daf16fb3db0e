"""The system call filter of the sandbox, as a classic BPF program built without a library.

Namespaces leave six holes that only a filter on system calls closes (seccomp(2)):

* AF_VSOCK talks to the hypervisor and is bound to no network namespace; so are a dozen rarer socket
  families. Only Unix, IPv4, IPv6 and netlink sockets may be made.
* io_uring makes sockets without the socket call, so past this filter. The filter refuses it as a whole.
* The kernel's keyrings are shared with the host's processes of the same user. The filter refuses them.
* In a user namespace of its own a program has every capability, and so reaches much more of the kernel. It may make or
  enter no namespace: programs that sandbox themselves must do without. The flags of clone3(2) lie in memory, where no
  filter can look, so it is refused; the C library takes clone(2) then.
* A file with the set-user-ID or set-group-ID bit in a workspace lends its owner's account to whoever runs it outside.
  No call may set these bits. That of open(2) counts only where it makes a file: otherwise the mode is what happened to
  be left there. openat2(2) has its mode in memory, where no filter can look: there is no such call, and programs take
  openat(2) then. A file capability does the same by an attribute whose name lies in memory; so no extended attribute
  can be set, as on a file system that has none.
* Foreign calling conventions number the calls differently, so past this filter. The filter kills a program of another
  architecture and refuses the x32 convention of x86_64.

Without namespaces (`shared=True`, for Landlock) the program is in the host's own network and its own
inter-process communication, and Landlock looks at connect(2) and bind(2) of plain TCP only. So further:

* Of IPv4 and IPv6 only TCP: no datagrams, no raw sockets, and neither MPTCP nor SCTP, which are
  stream sockets, too, and which Landlock lets through.
* No TCP Fast Open: with MSG_FASTOPEN a send connects without connect(2).
* Of netlink only routing, which the C library asks for the local addresses.
* No System V or POSIX message queues, semaphores and shared memory segments.
* No limit of another process: a program could lift Postroom's own.

The program is a list of 8-byte instructions (`struct sock_filter`, linux/filter.h) that look at one
`struct seccomp_data` (linux/seccomp.h): number at offset 0, architecture at 4, the low halves of the
arguments at 16, 24, ... (both supported architectures are little-endian).
"""

from __future__ import annotations

import errno
import platform
import socket
import stat
import struct
from dataclasses import dataclass

from postroom.errors import SandboxUnavailable

# Opcodes (linux/bpf_common.h): load a 32-bit word, jump if equal / if greater or equal / if any bit
# is set, and with a constant, return.
LOAD, JUMP_EQ, JUMP_GE, JUMP_SET, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000

OFFSET_NUMBER, OFFSET_ARCHITECTURE, OFFSET_FIRST_ARGUMENT = 0, 4, 16
X32_BIT = 0x40000000

UNIX, INET, INET6, NETLINK = int(socket.AF_UNIX), int(socket.AF_INET), int(socket.AF_INET6), 16
ALLOWED_FAMILIES = (UNIX, INET, INET6, NETLINK)
STREAM, TYPE_MASK = 1, 0xF
TCP_PROTOCOLS = (0, socket.IPPROTO_TCP)
MSG_FASTOPEN = 0x20000000

# The same numbers on every architecture.
CLONE3, OPENAT2 = 435, 437
SET_ID = stat.S_ISUID | stat.S_ISGID
MAKES_FILE = 0o100 | 0o20000000
"""The flags with which open(2) has a mode: O_CREAT, and the bit of O_TMPFILE that is not O_DIRECTORY."""
NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW flag but the one of time namespaces: its bit is part of clone's signal, and it needs a capability."""

DENIED, ODD_FAMILY = ERRNO | errno.EPERM, ERRNO | errno.EAFNOSUPPORT
NO_SUCH_CALL, NOT_SUPPORTED = ERRNO | errno.ENOSYS, ERRNO | errno.EOPNOTSUPP


@dataclass(frozen=True)
class Architecture:
    """The differences between machines: the audit number (linux/audit.h) and the call numbers.

    refused: calls that no program behind any wall needs.
    shared_refused: further calls that reach the host's processes where there are no namespaces.
    sends: calls that send, with the position of their flags among the arguments.
    sets_limits: prlimit64, whose first argument is the process, 0 for the caller.
    splits: calls whose first argument may ask for namespaces.
    sets_modes: calls that give a file a mode, with its position among the arguments.
    opens: calls that may make a file, with the positions of their flags and mode.
    sets_attributes: calls that set an extended attribute.
    """

    audit: int
    x32: bool
    makes_sockets: tuple[int, ...]
    refused: tuple[int, ...]
    shared_refused: tuple[int, ...]
    sends: tuple[tuple[int, int], ...]
    sets_limits: int
    splits: tuple[int, ...]
    sets_modes: tuple[tuple[int, int], ...]
    opens: tuple[tuple[int, int, int], ...]
    sets_attributes: tuple[int, ...]


ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        x32=True,
        makes_sockets=(41, 53),  # socket, socketpair
        refused=(
            425,
            426,
            427,
            248,
            249,
            250,
            308,
        ),  # io_uring_*; add_key, request_key, keyctl; setns
        # shm*, sem*, msg* (semtimedop is 220), mq_open, mq_unlink
        shared_refused=(29, 30, 31, 64, 65, 66, 220, 68, 69, 70, 71, 240, 241),
        sends=((44, 3), (46, 2), (307, 3)),  # sendto, sendmsg, sendmmsg
        sets_limits=302,
        splits=(56, 272),  # clone, unshare
        # chmod, fchmod, fchmodat, fchmodat2; creat; mkdir, mkdirat; mknod, mknodat
        sets_modes=(
            *((90, 1), (91, 1), (268, 2), (452, 2), (85, 1)),
            *((83, 1), (258, 2), (133, 1), (259, 2)),
        ),
        opens=((2, 1, 2), (257, 2, 3)),  # open, openat
        sets_attributes=(188, 189, 190, 463),  # setxattr, lsetxattr, fsetxattr, setxattrat
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        x32=False,
        makes_sockets=(198, 199),
        refused=(425, 426, 427, 217, 218, 219, 268),
        shared_refused=(194, 195, 196, 190, 191, 192, 193, 186, 187, 188, 189, 180, 181),
        sends=((206, 3), (211, 2), (269, 3)),
        sets_limits=261,
        splits=(220, 97),
        sets_modes=((52, 1), (53, 2), (452, 2), (34, 2), (33, 2)),
        opens=((56, 2, 3),),
        sets_attributes=(5, 6, 7, 463),
    ),
}
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


def program(machine: str | None = None, *, shared: bool = False) -> bytes:
    """The filter for `machine` (this one, if None), as bubblewrap's `--seccomp` reads it.

    Args:
        machine: as `platform.machine` calls it.
        shared: for a program without namespaces of its own.

    Raises:
        SandboxUnavailable: Postroom does not know the machine's call numbers.
    """
    name = (machine or platform.machine()).lower()
    architecture = ARCHITECTURES.get(_ALIASES.get(name, name))
    if architecture is None:
        raise SandboxUnavailable(
            f"there is no system call filter for the processor type {name!r}",
            remedy="run workers on x86_64 or aarch64",
        )
    return b"".join(_instructions(architecture, shared))


def _instructions(arch: Architecture, shared: bool) -> list[bytes]:
    code: list[bytes] = []
    # 1. Another architecture: its numbers mean other calls, so nothing below could be trusted.
    code += [_load(OFFSET_ARCHITECTURE), _jump(JUMP_EQ, arch.audit, 1, 0), _return(KILL_PROCESS)]
    # 2. x32 has the same architecture number and marks its calls by one bit.
    code += [_load(OFFSET_NUMBER)]
    if arch.x32:
        code += [_jump(JUMP_GE, X32_BIT, 0, 1), _return(DENIED)]
    # 3. Calls refused as a whole, and those that are looked at more closely.
    for number in arch.refused + (arch.shared_refused if shared else ()):
        code += [_jump(JUMP_EQ, number, 0, 1), _return(DENIED)]
    for number in (CLONE3, OPENAT2):
        code += [_jump(JUMP_EQ, number, 0, 1), _return(NO_SUCH_CALL)]
    for number in arch.sets_attributes:
        code += [_jump(JUMP_EQ, number, 0, 1), _return(NOT_SUPPORTED)]
    for number in arch.splits:
        code += _without_flags(number, 0, NEW_NAMESPACES)
    for number, position in arch.sets_modes:
        code += _without_flags(number, position, SET_ID)
    for number, flags, mode in arch.opens:
        code += _makes_without(number, flags, mode)
    if shared:
        code += _closer_looks(arch)
    # 4. Any call but socket and socketpair is allowed; those two jump over the "allow" to step 5.
    count = len(arch.makes_sockets)
    for index, number in enumerate(arch.makes_sockets):
        code += [_jump(JUMP_EQ, number, count - index, 0)]
    code += [_return(ALLOW)]
    # 5. Their first argument is the family, an int: the kernel looks at the low half only, as we do.
    return code + (_shared_families() if shared else _families())


def _families() -> list[bytes]:
    code = [_load_argument(0)]
    for family in ALLOWED_FAMILIES:
        code += [_jump(JUMP_EQ, family, 0, 1), _return(ALLOW)]
    return [*code, _return(ODD_FAMILY)]


def _closer_looks(arch: Architecture) -> list[bytes]:
    """Each check ends in a verdict or is jumped over, so the number stays loaded for the next one."""
    code = [_jump(JUMP_EQ, arch.sets_limits, 0, 4), _load_argument(0)]
    code += [_jump(JUMP_EQ, 0, 0, 1), _return(ALLOW), _return(DENIED)]
    for number, position in arch.sends:
        code += _without_flags(number, position, MSG_FASTOPEN)
    return code


def _without_flags(number: int, position: int, flags: int) -> list[bytes]:
    """Refuse call `number` if this argument has one of the flags."""
    code = [_jump(JUMP_EQ, number, 0, 4), _load_argument(position)]
    return [*code, _jump(JUMP_SET, flags, 0, 1), _return(DENIED), _return(ALLOW)]


def _makes_without(number: int, flags: int, mode: int) -> list[bytes]:
    """Refuse call `number` if it makes a file with one of the bits of `SET_ID`."""
    code = [_jump(JUMP_EQ, number, 0, 6), _load_argument(flags), _jump(JUMP_SET, MAKES_FILE, 0, 3)]
    code += [_load_argument(mode), _jump(JUMP_SET, SET_ID, 0, 1)]
    return [*code, _return(DENIED), _return(ALLOW)]


def _shared_families() -> list[bytes]:
    code = [_load_argument(0), _jump(JUMP_EQ, UNIX, 0, 1), _return(ALLOW)]
    code += [_jump(JUMP_EQ, NETLINK, 0, 4), _load_argument(2)]  # protocol 0 is NETLINK_ROUTE
    code += [_jump(JUMP_EQ, 0, 0, 1), _return(ALLOW), _return(ODD_FAMILY)]
    code += [_jump(JUMP_EQ, INET, 2, 0), _jump(JUMP_EQ, INET6, 1, 0), _return(ODD_FAMILY)]
    # The type comes with flags for the descriptor in its upper bits.
    code += [_load_argument(1), _instruction(AND, 0, 0, TYPE_MASK)]
    code += [_jump(JUMP_EQ, STREAM, 1, 0), _return(DENIED), _load_argument(2)]
    for protocol in TCP_PROTOCOLS:
        code += [_jump(JUMP_EQ, protocol, 0, 1), _return(ALLOW)]
    return [*code, _return(DENIED)]


def _instruction(code: int, if_true: int, if_false: int, k: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _load(offset: int) -> bytes:
    return _instruction(LOAD, 0, 0, offset)


def _load_argument(position: int) -> bytes:
    return _load(OFFSET_FIRST_ARGUMENT + 8 * position)


def _jump(kind: int, k: int, if_true: int, if_false: int) -> bytes:
    return _instruction(kind, if_true, if_false, k)


def _return(verdict: int) -> bytes:
    return _instruction(RETURN, 0, 0, verdict)
