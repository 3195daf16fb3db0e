"""The connect folder: where everything of a person's sessions on this machine is, for that person alone.

hook           the file that clients run; its path and its arguments never change
run.sock       `postroom connect run` listens here, 0600
run.lock       held by it while it lives
run.begun      a hook has begun it, and it does not listen yet
run.log        its log
sessions.db    sessions, their keys, and mail on its way, 0600
settings.json  which post room, and who may wake
receipts/      what `postroom connect CLIENT` wrote into clients' files
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from postroom.client import logins
from postroom.client.locate import ServerAddress, locate, read_private
from postroom.client.rules import Locate
from postroom.errors import EnvironmentFault, StateUnwritable
from postroom.identity import privatefile

HOOK, SOCKET, LOCK, LOG, JOURNAL = "hook", "run.sock", "run.lock", "run.log", "sessions.db"
BEGUN = "run.begun"
SETTINGS, RECEIPTS = "settings.json", "receipts"

HEADLESS = "POSTROOM_CONNECT"
"""In the environment of a run that nobody watches (`claude -p`): it is to have an address all the same."""


def folder() -> Path:
    """The connect folder, made where it is missing.

    Raises:
        EnvironmentFault: there is no home, or another user owns the folder.
        StateUnwritable: it cannot be made.
    """
    try:
        place = user_data_path("postroom") / "connect"
    except RuntimeError as error:
        raise EnvironmentFault("there is no home folder", remedy="set HOME") from error
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise EnvironmentFault(f"{place} is not a folder of yours", remedy="remove it")
        if found.st_mode & 0o077:
            place.chmod(0o700)
    except OSError as error:
        raise StateUnwritable(f"cannot make {place}: {error.strerror}") from error
    return place


def hook() -> Path:
    """The file that clients run."""
    return folder() / HOOK


def hook_command(client: str, event: str) -> str:
    """The command line of a hook in a client's file: it never changes, and does nothing where the file is gone."""
    path = shlex.quote(str(hook()))
    return f"[ -r {path} ] && exec sh {path} {client} {event}; exit 0"


def hook_content() -> str:
    """What the file that clients run has to hold, for this interpreter and what the person has chosen."""
    source = files("postroom.connect").joinpath("hook.sh").read_text()
    relay = Path(__file__).with_name("relay.py")
    return (
        source.replace("@PYTHON@", shlex.quote(sys.executable))
        .replace("@RELAY@", shlex.quote(str(relay)))
        .replace("@HEADLESS@", "1" if read_settings().headless else "")
    )


def write_hook() -> Path:
    """Write the file that clients run; one that is the same stays.

    Raises:
        StateUnwritable: the disk is full or read-only.
    """
    content = hook_content()
    path = hook()
    try:
        if path.is_file() and path.read_text() == content:
            return path
    except (OSError, UnicodeDecodeError):
        pass  # it is written anew
    privatefile.write_private(path, content.encode())
    path.chmod(0o700)
    return path


@dataclass(frozen=True, slots=True)
class Settings:
    """What the person has chosen.

    Attributes:
        state: state folder of the post room of this machine; "" for the usual one.
        login: name of a login, in place of a post room of this machine.
        org: "" for the default one.
        wake_from: who may wake a session beside its owner: nicks, `workers`, `all`.
        mute: whose mail stays out, in the same words.
        headless: runs that nobody watches have an address, too.
        approvals: clients; what their sessions ask their person is asked in the post room, too.
    """

    state: str = ""
    login: str = ""
    org: str = ""
    wake_from: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()
    headless: bool = False
    approvals: tuple[str, ...] = ()

    @property
    def room(self) -> tuple[str, str, str]:
        """Which post room it is."""
        return self.login, self.state, self.org

    def place(self) -> Locate:
        """What finds the post room, with the person's key; it raises NotRunning, NotFound or EnvironmentFault."""

        def find() -> ServerAddress:
            if self.login:
                return logins.read().find(self.login).address()
            return locate(Path(self.state) if self.state else _usual())

        return find


def read_settings() -> Settings:
    """What the person has chosen; the defaults where nothing is.

    Raises:
        EnvironmentFault: the file is not as `postroom connect` writes it, or not private.
    """
    path = folder() / SETTINGS
    content = read_private(path)
    if content is None:
        return Settings()
    try:
        said: dict[str, Any] = json.loads(content)
        names = ("wake_from", "mute", "approvals")
        lists = {name: tuple(map(str, said.pop(name, None) or ())) for name in names}
        return Settings(**said, **lists)
    except (ValueError, TypeError, AttributeError) as error:
        raise EnvironmentFault(
            f"{path} is not what `postroom connect` writes",
            remedy="remove it, then: postroom connect",
        ) from error


def write_settings(settings: Settings) -> None:
    """Keep what the person has chosen; raises StateUnwritable."""
    content = json.dumps(asdict(settings), indent=1)
    privatefile.write_private(folder() / SETTINGS, content.encode())


def _usual() -> Path:
    from postroom.settings import default_state

    return default_state().absolute()
