"""The rules for a spec, which every provider checks before it starts anything.

A worker writes its workspace and its state folder. So nothing that the host opens later may lie in them: a link planted
there would choose what the host mounts. And a mount of a whole system or shared folder would bring foreign sockets,
which no network namespace covers.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterable
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.sandbox.port import Mount, SandboxPaths, SandboxSpec

WHOLE_FOLDERS = frozenset(
    Path(name)
    for name in ("/", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var")  # noqa: S108
) | {Path("/var/run"), Path("/var/tmp")}  # noqa: S108
"""Host folders that are never shared as a whole: they hold sockets, devices or other users' files."""

LIVE_FOLDERS = tuple(Path(name) for name in ("/dev", "/proc", "/run", "/sys"))
"""Host folders of which no part is shared: sockets and devices answer even on a read-only mount."""

RESERVED_TARGETS = (
    *("/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin"),
    *("/sys", "/usr", "/var/lib/postroom", "/workspace"),
)
"""Places inside that no mount may cover or lie in."""


def home() -> Path | None:
    """The home folder of the user who runs Postroom; None for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def check(spec: SandboxSpec, paths: SandboxPaths, *, covers: bool = False) -> None:
    """Refuse a spec that is malformed or would open the wall.

    Args:
        covers: the provider keeps `SandboxSpec.covered` read-only.
    """
    if spec.covered and not covers:
        raise InvalidInput("this sandbox cannot keep a part of the workspace read-only")
    _check_words(spec)
    writable = [_folder("workspace", spec.workspace)]
    if spec.judged:
        refuse_another(spec.workspace, writable[0])
    if spec.state is not None:
        writable.append(_folder("state", spec.state))
    _check_apart(writable)
    if spec.gateway_socket is not None:
        _check_socket(spec.gateway_socket, writable)
    _check_log(spec.stderr_log, writable)
    _check_mounts(spec.read_only, writable)
    _check_covered(spec, writable[0])
    for name in spec.secrets:
        if posixpath.dirname(name) != paths.secrets or posixpath.basename(name) in {"", ".", ".."}:
            raise InvalidInput(f"secret {name!r} does not lie directly in {paths.secrets}")


def check_code(spec: SandboxSpec, code: Iterable[Path]) -> None:
    """Refuse a writable folder that holds any of `code`: the program could change what the host runs."""
    writable = [folder.resolve() for folder in (spec.workspace, spec.state) if folder is not None]
    for folder in code:
        _refuse_inside(folder, writable, "the code of Postroom in")


def _check_words(spec: SandboxSpec) -> None:
    if not spec.argv or not spec.argv[0]:
        raise InvalidInput("a sandbox needs a program to run")
    if not spec.workdir.startswith("/"):
        raise InvalidInput(f"the working folder {spec.workdir!r} is not an absolute path")
    for name in spec.env:
        if not name or "=" in name:
            raise InvalidInput(f"{name!r} cannot be the name of an environment variable")
    _refuse_nul([*spec.argv, *spec.env, *spec.env.values(), spec.workdir, *spec.secrets])
    _refuse_nul(mount.target for mount in spec.read_only)


def _refuse_nul(words: Iterable[str]) -> None:
    # bubblewrap reads options separated by NUL: one in a value could add an option.
    for word in words:
        if "\0" in word:
            raise InvalidInput("a NUL byte in an argument, a path or the environment")


def _folder(role: str, path: Path) -> Path:
    if not path.is_dir():
        raise InvalidInput(f"the {role} folder {path} does not exist")
    real = path.resolve(strict=True)
    if real in WHOLE_FOLDERS or real == home():
        raise InvalidInput(f"{real} cannot be shared with a sandbox as a whole")
    return real


def _check_apart(writable: list[Path]) -> None:
    for one in writable:
        for other in writable:
            if one is not other and one.is_relative_to(other):
                raise InvalidInput(f"{one} lies inside {other}, which the sandbox can write")


def _check_socket(socket: Path, writable: list[Path]) -> None:
    if not socket.is_socket():
        raise InvalidInput(f"the gateway socket {socket} does not exist or is not a socket")
    _refuse_inside(socket.resolve(strict=True), writable, "the gateway socket")


def _check_log(log: Path, writable: list[Path]) -> None:
    _refuse_inside(log.parent.resolve(), writable, "the log")


def _check_mounts(mounts: tuple[Mount, ...], writable: list[Path]) -> None:
    for mount in mounts:
        try:
            source = mount.source.resolve(strict=True)
        except OSError as error:
            raise InvalidInput(f"cannot share {mount.source}: {error.strerror}") from error
        if mount.judged:
            refuse_another(mount.source, source)
        if source in WHOLE_FOLDERS or _holds_home(source):
            raise InvalidInput(f"{source} cannot be shared with a sandbox as a whole")
        if any(source.is_relative_to(folder) for folder in LIVE_FOLDERS):
            # Compare real names: /var/run is /run on most systems.
            raise InvalidInput(
                f"{source} cannot be shared with a sandbox: sockets and devices in there would answer"
            )
        _refuse_inside(source, writable, "a read-only mount")
        _refuse_inside(mount.source.absolute(), writable, "a read-only mount")
        _check_target(mount.target)


def refuse_another(judged: Path, present: Path) -> None:
    """Refuse a place that leads elsewhere than when it was judged."""
    if present != judged:
        raise InvalidInput(
            f"{judged} leads to another place by now: to {present}",
            remedy="somebody has put a link there: name the folder that is meant",
        )


def _check_covered(spec: SandboxSpec, workspace: Path) -> None:
    for name in spec.covered:
        _refuse_nul([name])
        if posixpath.normpath(name) != name or name.startswith(("/", "../")) or name in {".", ".."}:
            raise InvalidInput(f"{name!r} is not a plain path below the workspace")
        # A link in it would choose what the host shows.
        place = workspace / name
        if place.resolve() != place or not (place.is_dir() or place.is_file()):
            raise InvalidInput(f"{place} is not a folder or a file by itself")


def _holds_home(folder: Path) -> bool:
    users = home()
    return users is not None and users.resolve().is_relative_to(folder)


def _check_target(target: str) -> None:
    if not target.startswith("/") or posixpath.normpath(target) != target or target == "/":
        raise InvalidInput(f"mount target {target!r} is not a plain absolute path")
    for reserved in RESERVED_TARGETS:
        if target == reserved or target.startswith(f"{reserved}/"):
            raise InvalidInput(f"mount target {target!r} lies in {reserved}, which is not free")


def _refuse_inside(path: Path, writable: list[Path], what: str) -> None:
    for folder in writable:
        if path.is_relative_to(folder):
            raise InvalidInput(f"{what} {path} lies inside {folder}, which the sandbox can write")


SHORT_PATH = 48
"""Bytes of a folder's path that leave room for a socket's name: a socket's path has 107 at most."""


def folder_for_sockets() -> str:
    """The folder for temporary folders with unix sockets: the usual one, unless its path is too long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= SHORT_PATH else "/tmp"  # noqa: S108
