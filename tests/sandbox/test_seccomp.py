from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import SandboxUnavailable
from postroom.sandbox import seccomp
from postroom.sandbox.seccomp import ALLOW, ARCHITECTURES, ERRNO, KILL_PROCESS

X86, ARM = ARCHITECTURES["x86_64"].audit, ARCHITECTURES["aarch64"].audit
DENIED, ODD_FAMILY = ERRNO | errno.EPERM, ERRNO | errno.EAFNOSUPPORT
WORD = st.integers(0, 2**32 - 1)
LONG = st.integers(0, 2**64 - 1)


def verdict(program: bytes, number: int, audit: int, *arguments: int) -> int:
    """What the kernel's classic BPF machine returns for one call."""
    data = struct.pack("<IIQQQQQQQ", number, audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator = at = 0
    while True:
        kind, if_true, if_false, k = code[at]
        at += 1
        match kind:
            case seccomp.LOAD:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case seccomp.JUMP_EQ:
                at += if_true if accumulator == k else if_false
            case seccomp.JUMP_GE:
                at += if_true if accumulator >= k else if_false
            case seccomp.JUMP_SET:
                at += if_true if accumulator & k else if_false
            case seccomp.AND:
                accumulator &= k
            case seccomp.RETURN:
                return k
            case _:
                raise AssertionError(f"unknown instruction {kind:#x}")


@pytest.mark.requirement("sandbox-kernel-files-closed")
@pytest.mark.parametrize(
    "machine, audit, number, first, expected",
    [
        ("x86_64", X86, 41, 1, ALLOW),  # a Unix socket
        ("x86_64", X86, 41, 2, ALLOW),  # IPv4
        ("x86_64", X86, 41, 10, ALLOW),  # IPv6
        ("x86_64", X86, 41, 16, ALLOW),  # netlink
        ("x86_64", X86, 41, 40, ODD_FAMILY),  # vsock
        ("x86_64", X86, 41, 17, ODD_FAMILY),  # raw packets
        ("x86_64", X86, 41, 38, ODD_FAMILY),  # the kernel's cryptography
        ("x86_64", X86, 41, 2**32 + 40, ODD_FAMILY),  # the kernel looks at the low half only
        ("x86_64", X86, 41, 2**32 + 1, ALLOW),
        ("x86_64", X86, 53, 1, ALLOW),  # a pair
        ("x86_64", X86, 53, 40, ODD_FAMILY),
        ("x86_64", X86, 425, 0, DENIED),  # io_uring
        ("x86_64", X86, 426, 0, DENIED),
        ("x86_64", X86, 427, 0, DENIED),
        ("x86_64", X86, 250, 0, DENIED),  # keyctl
        ("x86_64", X86, 0, 0, ALLOW),  # read
        ("x86_64", X86, 272, 0x10000000, DENIED),  # unshare: a user namespace
        ("x86_64", X86, 272, 0x40000000, DENIED),
        ("x86_64", X86, 272, 0x200, ALLOW),  # its working folder
        ("x86_64", X86, 56, 0x10000011, DENIED),  # clone
        ("x86_64", X86, 56, 17, ALLOW),  # fork
        ("x86_64", X86, 56, 0x3D0F00, ALLOW),  # a thread
        ("x86_64", X86, 435, 0, seccomp.NO_SUCH_CALL),  # clone3
        ("x86_64", X86, 308, 3, DENIED),  # setns
        ("x86_64", X86, 0x40000000 + 41, 1, DENIED),  # x32
        ("x86_64", 0x40000003, 41, 1, KILL_PROCESS),  # i386
        ("x86_64", ARM, 198, 1, KILL_PROCESS),
        ("aarch64", ARM, 198, 1, ALLOW),
        ("aarch64", ARM, 198, 40, ODD_FAMILY),
        ("aarch64", ARM, 199, 40, ODD_FAMILY),
        ("aarch64", ARM, 425, 0, DENIED),
        ("aarch64", ARM, 219, 0, DENIED),
        ("aarch64", ARM, 97, 0x10000000, DENIED),
        ("aarch64", ARM, 220, 0x10000011, DENIED),
        ("aarch64", ARM, 220, 0x3D0F00, ALLOW),
        ("aarch64", ARM, 435, 0, seccomp.NO_SUCH_CALL),
        ("aarch64", ARM, 268, 3, DENIED),
        ("aarch64", ARM, 41, 40, ALLOW),  # pivot_root there; it needs a capability
        ("aarch64", X86, 41, 1, KILL_PROCESS),
        ("arm64", ARM, 198, 40, ODD_FAMILY),
        ("AMD64", X86, 41, 40, ODD_FAMILY),
    ],
)
def test_each_call_gets_its_verdict(
    machine: str, audit: int, number: int, first: int, expected: int
):
    assert verdict(seccomp.program(machine), number, audit, first) == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
@given(number=WORD, audit=WORD, first=LONG)
def test_a_call_of_another_architecture_always_ends_the_program(
    machine: str, number: int, audit: int, first: int
):
    if audit != ARCHITECTURES[machine].audit:
        assert verdict(seccomp.program(machine), number, audit, first) == KILL_PROCESS


@pytest.mark.parametrize("machine", ARCHITECTURES)
@given(first=LONG, which=st.integers(0, 1))
def test_only_the_four_families_can_be_had(machine: str, first: int, which: int):
    arch = ARCHITECTURES[machine]
    allowed = first % 2**32 in {1, 2, 10, 16}

    found = verdict(seccomp.program(machine), arch.makes_sockets[which], arch.audit, first)

    assert found == (ALLOW if allowed else ODD_FAMILY)


@pytest.mark.parametrize("machine", ARCHITECTURES)
@given(number=st.integers(0, 1000), first=LONG)
def test_a_call_that_is_not_named_is_allowed(machine: str, number: int, first: int):
    arch = ARCHITECTURES[machine]
    looked_at = {*arch.refused, *arch.makes_sockets, *arch.splits, *arch.sets_attributes}
    looked_at |= {
        seccomp.CLONE3,
        seccomp.OPENAT2,
        *(call[0] for call in arch.sets_modes + arch.opens),
    }
    if number not in looked_at:
        assert verdict(seccomp.program(machine), number, arch.audit, first) == ALLOW


def test_a_machine_whose_call_numbers_are_unknown_gets_no_filter():
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp.program("riscv64")


CREATE, TEMPORARY, FOLDER = 0o100, 0o20000000, 0o200000
NAMED = {
    "chmod": ((90,), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
    "creat": ((85,), 1),
    "mkdir": ((83,), 1),
    "mkdirat": ((258, 34), 2),
    "mknod": ((133,), 1),
    "mknodat": ((259, 33), 2),
}
SETTERS = [
    (machine, number, position)
    for numbers, position in NAMED.values()
    for machine, number in zip(ARCHITECTURES, numbers, strict=False)
]
OPENS = [("x86_64", 2, 1), ("x86_64", 257, 2), ("aarch64", 56, 2)]


def _call(machine: str, shared: bool, number: int, *arguments: int) -> int:
    program = seccomp.program(machine, shared=shared)
    return verdict(program, number, ARCHITECTURES[machine].audit, *arguments)


@pytest.mark.requirement("sandbox-kernel-files-closed")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("machine, number, position", SETTERS)
@given(mode=LONG, other=LONG)
def test_no_call_gives_a_file_the_set_id_bits(
    machine: str, number: int, position: int, shared: bool, mode: int, other: int
):
    arguments = [other] * 6
    arguments[position] = mode

    found = _call(machine, shared, number, *arguments)

    assert found == (DENIED if mode & 0o6000 else ALLOW)


@pytest.mark.requirement("sandbox-kernel-files-closed")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("machine, number, flags", OPENS)
@given(mode=LONG, said=LONG, makes=st.sampled_from([0, CREATE, TEMPORARY, TEMPORARY | FOLDER]))
def test_a_file_is_opened_with_any_mode_and_made_without_the_set_id_bits(
    machine: str, number: int, flags: int, shared: bool, mode: int, said: int, makes: int
):
    arguments = [0] * 6
    arguments[flags : flags + 2] = (said & ~(CREATE | TEMPORARY)) | makes, mode

    found = _call(machine, shared, number, *arguments)

    assert found == (DENIED if makes and mode & 0o6000 else ALLOW)


@pytest.mark.requirement("sandbox-kernel-files-closed")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("machine, numbers", [("x86_64", (188, 189, 190)), ("aarch64", (5, 6, 7))])
def test_what_no_filter_can_look_into_is_not_there(
    machine: str, numbers: tuple[int, ...], shared: bool
):
    assert _call(machine, shared, 437) == seccomp.NO_SUCH_CALL  # openat2
    for number in (*numbers, 463):
        assert _call(machine, shared, number) == ERRNO | errno.EOPNOTSUPP


TCP, UDP, MPTCP, SCTP = 6, 17, 262, 132
STREAM, DATAGRAM, RAW = 1, 2, 3
CLOSE_ON_EXEC = 0o2000000
FASTOPEN = 0x20000000


@pytest.mark.requirement("sandbox-kernel-files-closed")
@pytest.mark.parametrize(
    "number, arguments, expected",
    [
        (41, (1, DATAGRAM), ALLOW),
        (41, (2, STREAM), ALLOW),
        (41, (2, STREAM | CLOSE_ON_EXEC, TCP), ALLOW),
        (41, (10, STREAM, TCP), ALLOW),
        (41, (2, DATAGRAM), DENIED),
        (41, (10, DATAGRAM | CLOSE_ON_EXEC, UDP), DENIED),
        (41, (2, RAW, 1), DENIED),
        (41, (2, STREAM, MPTCP), DENIED),
        (41, (2, STREAM, SCTP), DENIED),
        (41, (16, RAW, 0), ALLOW),  # routing
        (41, (16, RAW, 9), ODD_FAMILY),  # audit
        (41, (40, STREAM), ODD_FAMILY),
        (44, (3, 0, 0, 0), ALLOW),
        (44, (3, 0, 0, FASTOPEN | 0x4000), DENIED),
        (46, (3, 0, 0), ALLOW),
        (46, (3, 0, FASTOPEN), DENIED),
        (307, (3, 0, 1, FASTOPEN), DENIED),
        (307, (3, 0, FASTOPEN, 0), ALLOW),  # the count of messages, no flag
        (302, (0, 7), ALLOW),
        (302, (1234, 7), DENIED),
        (29, (), DENIED),  # shmget
        (240, (), DENIED),  # mq_open
        (425, (), DENIED),
        (0, (), ALLOW),
    ],
)
def test_without_namespaces_more_is_refused(number: int, arguments: tuple[int, ...], expected: int):
    assert verdict(seccomp.program("x86_64", shared=True), number, X86, *arguments) == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
@given(number=st.integers(0, 1000), arguments=st.tuples(LONG, LONG, LONG, LONG))
def test_what_is_refused_with_namespaces_is_refused_without_them(
    machine: str, number: int, arguments: tuple[int, ...]
):
    audit = ARCHITECTURES[machine].audit
    strict = verdict(seccomp.program(machine, shared=True), number, audit, *arguments)

    if verdict(seccomp.program(machine), number, audit, *arguments) != ALLOW:
        assert strict != ALLOW
