"""Sets Landlock and a system call filter for itself, then becomes the program: `confine.py RULES -- argv`.

RULES is JSON: `read`, `write`, `device` and `names` are paths (a rule of `names` lists folders and reads nothing),
`ports` TCP ports to bind and connect to, `filter` the system call filter in hexadecimal, `hidden` paths with whether
they are folders, which root covers for the program. Landlock refuses the rest (landlock(7)). The rules hold for the
program and all that it starts, for good. The script runs by its file name and imports the standard library only.

If it cannot set a rule the script ends without running the program.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys

# The same numbers on every architecture (asm-generic/unistd.h).
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
RULE_PATH, RULE_PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
ALL_FILES = (1 << 16) - 1
"""All rights over files of version 6: those above, and to make, move and remove entries."""
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
"""The rights that a rule on something other than a folder may name."""
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = ALL_FILES & ~IOCTL_DEVICE
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEVICE
RIGHTS = {"read": READ, "write": WRITE, "device": DEVICE, "names": READ_DIR}
BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_SOCKET, SCOPE_SIGNAL = 1, 2

PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP_FILTER = 2
CLONE_NEWNS = 0x20000
MS_READ_ONLY, MS_BIND, MS_RECURSIVE, MS_SLAVE = 1, 1 << 12, 1 << 14, 1 << 19
CAPABILITY_VERSION = 0x20080522
COULD_NOT_CONFINE = 126

_libc = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def version() -> int:
    """The kernel's version of Landlock, 0 for none."""
    if sys.platform != "linux":
        return 0
    found = _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(ASK_VERSION))
    return max(0, int(found))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, *arguments: object) -> int:
    padded = [*arguments, 0, 0, 0, 0][:4]
    return int(
        _libc.prctl(option, *(ctypes.c_ulong(a) if isinstance(a, int) else a for a in padded))
    )


def hide(paths: dict[str, bool]) -> None:
    """Cover the paths with nothing, in a mount namespace of this process's own; raises OSError."""
    if not paths:
        return
    _checked(_libc.unshare(CLONE_NEWNS), "mount namespace")
    _mount(None, "/", None, MS_RECURSIVE | MS_SLAVE)
    for path, is_folder in paths.items():
        if is_folder:
            _mount("none", path, "tmpfs", MS_READ_ONLY)
        else:
            _mount("/dev/null", path, None, MS_BIND)


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    words = (word if word is None else os.fsencode(word) for word in (source, target, kind))
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), None), target)


def _ruleset(rules: dict[str, list[str]], ports: list[int]) -> int:
    scope = SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL
    attributes = struct.pack("=QQQ", ALL_FILES, BIND_TCP | CONNECT_TCP, scope)
    ruleset = _checked(
        _libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock"
    )
    for kind, rights in RIGHTS.items():
        for path in rules[kind]:
            _allow(ruleset, path, rights)
    for port in ports:
        rule = struct.pack("=QQ", BIND_TCP | CONNECT_TCP, port)
        _checked(_libc.syscall(ADD_RULE, ruleset, RULE_PORT, rule, 0), f"port {port}")
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_A_FILE
        rule = struct.pack("=Qi", rights, place)
        _checked(_libc.syscall(ADD_RULE, ruleset, RULE_PATH, rule, 0), path)
    finally:
        os.close(place)


def _drop_capabilities() -> None:
    """Drop the real root's capabilities, which could undo much of this; other users have none."""
    capability = 0
    while _prctl(PR_CAPBSET_DROP, capability) == 0:
        capability += 1
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header, none = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    _checked(_libc.capset(header, none), "capabilities")


def confine(rules: dict[str, list[str]], ports: list[int], code: bytes) -> None:
    """Set every rule for this process, for good; raises OSError if the kernel refuses one."""
    ruleset = _ruleset(rules, ports)
    _drop_capabilities()
    _checked(_prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
    _checked(_libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)
    program = _Filter(len(code) // 8, code)
    _checked(_prctl(PR_SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(program)), "seccomp")


def main(argv: list[str]) -> None:
    """Confine this process and run the program in its place."""
    words, separator, *command = argv
    if separator != "--" or not command:
        raise SystemExit("usage: confine.py RULES -- program [argument...]")
    rules = json.loads(words)
    try:
        hide(rules["hidden"])
        confine(rules, rules["ports"], bytes.fromhex(rules["filter"]))
    except OSError as error:
        sys.stderr.write(f"the program could not be confined: {error}\n")
        raise SystemExit(COULD_NOT_CONFINE) from error
    try:
        os.execvp(command[0], command)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        raise SystemExit(127) from error


if __name__ == "__main__":
    main(sys.argv[1:])
