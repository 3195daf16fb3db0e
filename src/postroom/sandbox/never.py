"""The folders and files of a machine that no sandbox is shown, whoever asks: where keys, logins and live sockets lie.

What counts is where a path leads to, as the kernel says of the opened descriptor (`real_name`): a link may have any
name. `postroom.workers` judges each folder of a person by it before a worker gets it, and a provider shows only what
still has the name that was judged (`postroom.sandbox.port.Mount.judged`).
"""

from __future__ import annotations

import fcntl
import os
import pwd
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.sandbox.policy import LIVE_FOLDERS, WHOLE_FOLDERS, home

ANYWHERE = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".mozilla"),
    *(".netrc", ".git-credentials", ".pgpass", ".vault-token", "id_rsa", "id_ed25519", "id_ecdsa"),
)
"""Names of folders and files of keys in whatever folder they lie: a home may be anywhere."""

OF_HOMES = (
    # Keys, logins and keyrings.
    *(".npmrc", ".yarnrc.yml", ".pypirc", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto", ".pki"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".bash_history"),
    *(".terraform.d/credentials.tfrc.json", ".zsh_history", ".putty", ".oci", ".ibmcloud", ".krew"),
    *(".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub", ".config/git/credentials"),
    *(".config/op", ".config/1Password", ".config/Bitwarden", ".config/keepassxc", ".config/sops"),
    *(".config/age", ".config/rclone", ".config/doctl", ".config/heroku", ".config/containers"),
    *(".config/helm", ".config/pulumi", ".pulumi", ".config/postroom", ".config/systemd"),
    *(".local/share/keyrings", ".local/share/kwalletd", ".gnome2/keyrings", ".local/share/pass"),
    # Stores of agents.
    *(".claude", ".claude.json", ".config/claude", ".codex", ".gemini", ".qwen", ".cursor"),
    *(".config/opencode", ".local/share/opencode", ".config/goose", ".local/share/goose"),
    *(".copilot", ".config/github-copilot", ".config/amp", ".local/share/amp", ".factory"),
    *(".aider.conf.yml", ".continue", ".cline", ".config/Cursor", ".config/Code", ".config/zed"),
    # Profiles of browsers and mail programs.
    *(".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/vivaldi"),
    *(".config/microsoft-edge", ".config/opera", ".thunderbird", ".config/Slack", ".config/Signal"),
    *("snap/firefox", "snap/chromium", ".var/app", ".cache/mozilla", ".cache/google-chrome"),
    *("Library/Keychains", "Library/Application Support", "Library/Cookies", "Library/Safari"),
    *("Library/Containers", "Library/Group Containers", "Library/Mail", "Library/Preferences"),
)
"""Folders and files of keys, logins and profiles, below a home."""

PROGRAMS_OF_HOMES = (".claude/local",)
"""Folders of programs, though they lie in one of those."""

OF_MACHINES = tuple(
    Path(name)
    for name in (
        *(
            "/etc/ssh",
            "/etc/ssl/private",
            "/etc/pki/tls/private",
            "/etc/letsencrypt",
            "/etc/shadow",
        ),
        *("/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/kubernetes", "/etc/wireguard"),
        *("/etc/sudoers", "/etc/sudoers.d", "/etc/krb5.keytab", "/etc/NetworkManager"),
        *("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet"),
        *("/var/db/dslocal", "/Library/Keychains"),
    )
)
"""Folders and files of a machine's own keys."""

FOLDERS_OF_VARIABLES = (
    *("GNUPGHOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "DOCKER_CONFIG", "AZURE_CONFIG_DIR"),
    *("CLOUDSDK_CONFIG", "PASSWORD_STORE_DIR", "GH_CONFIG_DIR", "XDG_RUNTIME_DIR"),
)
"""Variables that put one of those folders elsewhere."""

BASES_OF_VARIABLES = {"XDG_CONFIG_HOME": ".config/", "XDG_DATA_HOME": ".local/share/"}
"""Variables that put several of them elsewhere, with the beginning of their names in a home."""

SIGNS_OF_A_HOME = (".ssh", ".gnupg")
"""What has one of these right in it is a home, whoever's it is."""

PEOPLE = range(500, 65_000)
"""Numbers of the accounts of people; those below belong to programs, and their homes are the system's."""

F_GETPATH = 50
"""fcntl(2) of macOS: the path of an open file."""


@contextmanager
def opened(path: Path) -> Generator[tuple[int, Path]]:
    """The descriptor of what `path` leads to (on Linux for names alone: O_PATH), and its real name.

    Raises:
        OSError: there is nothing.
    """
    place = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield place, name_of(place)
    finally:
        os.close(place)


def real_name(path: Path) -> Path:
    """The name of what `path` leads to, as the kernel says of the opened descriptor.

    Raises:
        InvalidInput: there is nothing, or it cannot be looked at.
    """
    try:
        with opened(path) as (_, name):
            return name
    except OSError as error:
        raise InvalidInput(f"cannot look at {path}: {error.strerror}") from error


def name_of(place: int) -> Path:
    """The name of what a descriptor stands for."""
    if sys.platform == "darwin":
        return Path(os.fsdecode(fcntl.fcntl(place, F_GETPATH, bytes(1024)).rstrip(b"\0")))
    return Path(f"/proc/self/fd/{place}").readlink()


def never_shown(real: Path, own: Iterable[Path] = (), *, holding: bool = True) -> str:
    """Why no sandbox is shown what has this real name, "" where nothing speaks against it.

    Args:
        own: the folders of the post room: its state, with all workers' folders, and its doors.
        holding: also refuse what has such a place somewhere below it, as a whole home has.
    """
    if any(real.is_relative_to(folder) for folder in LIVE_FOLDERS):
        return "sockets, devices and processes of the machine are in there"
    for place in (folder.resolve() for folder in own):
        if real.is_relative_to(place):
            return "it is Postroom's own"
        if holding and place.is_relative_to(real):
            return "Postroom's own folder is in there"
    homes = _homes()
    if holding and (real in WHOLE_FOLDERS or real in homes):
        return "it is a whole system or home folder"
    if holding and any((real / name).exists() for name in SIGNS_OF_A_HOME):
        return "it is a home folder: keys are in there"
    if any(_within(real, known / name) for known in homes for name in PROGRAMS_OF_HOMES):
        return ""
    for part in real.parts:
        if part.casefold() in ANYWHERE:
            return f"keys and logins are in folders called {part}"
    for place in _places(homes):
        if _within(real, place):
            return "keys, logins or profiles are in there"
        if holding and _within(place, real):
            return f"{place} would be in there, where keys, logins or profiles are"
    return ""


def _within(path: Path, folder: Path) -> bool:
    # A file system may take small letters for large ones.
    inner, outer = ([part.casefold() for part in each.parts] for each in (path, folder))
    return inner[: len(outer)] == outer


def _homes() -> list[Path]:
    """The homes of who runs Postroom and of the people of this machine, by their real names."""
    found = [known for known in (home(),) if known is not None]
    found += [
        Path(account.pw_dir)
        for account in pwd.getpwall()
        if account.pw_uid in {0, os.geteuid()} or account.pw_uid in PEOPLE
    ]
    real = dict.fromkeys(folder.resolve() for folder in found if folder.is_absolute())
    return [folder for folder in real if folder != Path("/")]


def _places(homes: list[Path]) -> Iterator[Path]:
    yield from OF_MACHINES
    named = [os.environ.get(name, "") for name in FOLDERS_OF_VARIABLES]
    yield from (Path(folder).resolve() for folder in named if folder.startswith("/"))
    for known in homes:
        yield from (known / name for name in (*ANYWHERE, *OF_HOMES))
    for variable, beginning in BASES_OF_VARIABLES.items():
        base = os.environ.get(variable, "")
        if base.startswith("/"):
            names = (name for name in OF_HOMES if name.startswith(beginning))
            yield from (Path(base).resolve() / name.removeprefix(beginning) for name in names)
