"""The bubblewrap options for a spec. Pure, so that they can be read and tested.

bubblewrap reads them from a memory file (`--args`), not from the command line: they hold host paths and the
environment, and every user of the machine, and the sandbox, can read a command line. The order matters: a later mount
covers an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from postroom.sandbox import kernel
from postroom.sandbox.port import SandboxPaths, SandboxSpec

UID = 1000
HOME = "/home/worker"
RUNTIME = "/run/postroom"

PATHS = SandboxPaths(
    workspace="/workspace",
    state="/var/lib/postroom",
    gateway_socket=f"{RUNTIME}/gateway.sock",
    secrets=f"{RUNTIME}/secrets",
    home=HOME,
    mounts={},
)

SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into /usr on most systems, folders on some; every sandbox also has `/usr` itself."""

ETC = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
)
"""The files of the host's /etc that programs need. No resolv.conf: there is no DNS to ask."""

SHOWN = ("/usr", *SYSTEM_FOLDERS, *ETC)
"""The parts of the host that every program sees at their own paths."""

OWN_ETC: Mapping[str, bytes] = {
    "/etc/passwd": f"worker:x:{UID}:{UID}::{HOME}:/bin/sh\n".encode(),
    "/etc/group": f"worker:x:{UID}:\n".encode(),
    "/etc/hosts": b"127.0.0.1 localhost worker\n::1 localhost worker\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}
"""Files of /etc with Postroom's own content, so that no name of the host's users gets in."""

MEMORY_FOLDERS: Mapping[str, tuple[str, int]] = {
    "/dev/shm": ("1777", 256 << 20),  # noqa: S108
    "/tmp": ("1777", 1 << 30),  # noqa: S108
    HOME: ("0700", 1 << 30),
    RUNTIME: ("0755", 1 << 20),
}
"""Folders in memory that the program may write: path to mode and size in bytes.

A size, since the kernel's default bound is half of the machine's memory for each.
"""

NAMESPACES = ("user", "ipc", "pid", "net", "uts", "cgroup")


@dataclass(frozen=True)
class HostView:
    """The host's part of the options; the rest comes from the spec.

    python: folders of the running Python (see `python_home`).
    links: target of each of `SYSTEM_FOLDERS` that is a link on this host; "" for a folder.
    as_root: whether Postroom runs as the real root (see `_root_options`).
    hidden: paths of procfs to cover (see `kernel.hidden`).
    own_network: whether bubblewrap makes the network namespace, with loopback only.
    """

    python: tuple[Path, ...]
    links: Mapping[str, str]
    as_root: bool
    hidden: Mapping[str, bool] = field(default_factory=dict)
    own_network: bool = True


def system_links() -> dict[str, str]:
    """This host's `SYSTEM_FOLDERS`: name to link target, "" for a real folder."""
    found = {name: Path(name) for name in SYSTEM_FOLDERS if Path(name).exists()}
    return {n: str(path.readlink()) if path.is_symlink() else "" for n, path in found.items()}


def options(
    spec: SandboxSpec,
    host: HostView,
    files: Mapping[str, int],
    places: Mapping[str, int] | None = None,
) -> list[str]:
    """All options but the command.

    `files` maps paths inside to open descriptors, for the files in `OWN_ETC` and for the secrets: bubblewrap copies
    the former, the program inherits the latter. `places` maps paths inside to descriptors of judged
    places of the host.
    """
    words = [f"--unshare-{name}" for name in NAMESPACES if name != "net" or host.own_network]
    words += ["--uid", str(UID), "--gid", str(UID), "--hostname", "worker", "--clearenv"]
    words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += _system(host) + _files(files, OWN_ETC, "0444")
    words += ["--proc", "/proc", *_hidden(host), "--dev", "/dev"]
    for name, (mode, most) in MEMORY_FOLDERS.items():
        size = min(most, spec.limits.memory or most)
        words += ["--perms", mode, "--size", str(size), "--tmpfs", name]
    if host.as_root:
        words += _root_options()
    for folder in host.python:
        words += ["--ro-bind", str(folder), str(folder)]
    words += _shared(spec, places or {})
    words += ["--perms", "0700", "--dir", PATHS.secrets]
    for name in spec.secrets:
        # Not copied by bubblewrap: its process 1 keeps a copy on its stack, where the program can read it.
        words += ["--symlink", f"/proc/self/fd/{files[name]}", name]
    for name, value in spec.env.items():
        words += ["--setenv", name, value]
    # The root is a tmpfs of the sandbox's own; the mounts in it keep their own mode.
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", spec.workdir]


def _system(host: HostView) -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for name, target in host.links.items():
        words += ["--symlink", target, name] if target else ["--ro-bind", name, name]
    for name in ETC:
        words += ["--ro-bind-try", name, name]
    return words


def _hidden(host: HostView) -> list[str]:
    words: list[str] = []
    for path, is_folder in host.hidden.items():
        # A device that is bound without permission for devices cannot be opened.
        cover = ["--tmpfs", path, "--remount-ro", path]
        words += cover if is_folder else ["--ro-bind", "/dev/null", path]
    return words


def _root_options() -> list[str]:
    # The real root stays the owner of the kernel's settings even in a user namespace and without any
    # capability: it could write /proc/sys/kernel/core_pattern, which the kernel runs as root outside.
    # So bubblewrap covers the settings and forbids further user namespaces, in which the program could mount
    # procfs or the control groups afresh.
    words = [word for path in kernel.settable() for word in ("--ro-bind", path, path)]
    return [*words, "--disable-userns"]


def _files(files: Mapping[str, int], names: Iterable[str], mode: str) -> list[str]:
    words: list[str] = []
    for name in names:
        words += ["--perms", mode, "--file", str(files[name]), name]
    return words


def _shared(spec: SandboxSpec, places: Mapping[str, int]) -> list[str]:
    words: list[str] = []
    for mount in spec.read_only:
        words += _bind("--ro-bind", mount.source, mount.target, places)
    workspace = spec.workspace.resolve()
    words += _bind("--bind", workspace, PATHS.workspace, places)
    for name in spec.covered:
        # A mount point can be neither renamed nor removed, so nothing else takes its place.
        words += ["--ro-bind", str(workspace / name), f"{PATHS.workspace}/{name}"]
    if spec.state is not None:
        words += ["--bind", str(spec.state.resolve()), PATHS.state]
    if spec.gateway_socket is not None:
        words += ["--ro-bind", str(spec.gateway_socket.resolve()), PATHS.gateway_socket]
    return words


def _bind(option: str, source: Path, target: str, places: Mapping[str, int]) -> list[str]:
    if target in places:
        return [f"{option}-fd", str(places[target]), target]
    return [option, str(source.resolve()), target]
