"""Finds the running post room: its address and the operator's credential, from the state folder.

`server.json` holds a secret. A file that other users can read, or that another user wrote, is refused, since its
address could lead anywhere.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import EnvironmentFault, NotRunning
from postroom.settings import default_state

FILE = "server.json"
MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a post room.

    Attributes:
        url: of its HTTP interface, without a slash at the end.
        ca: path of the authority to trust if the URL is `https`; "" for those that this system trusts.
        token: bearer token of the operator; left out of `repr` so that no log shows it.
        listen: URLs for others, of the API and of the bus.
        notes: notes about this start for people, a sentence each.
    """

    url: str
    pid: int
    token: str = field(repr=False)
    ca: str = ""
    listen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def locate(state: Path) -> ServerAddress:
    """The post room that runs on the folder `state`.

    Raises:
        NotRunning: none runs, or it ended without tidying up.
        EnvironmentFault: the file is not private to this user, or not in the form that a post room writes.
    """
    path = state / FILE
    server = _parse(path, _read_private(path))
    if not _alive(server.pid):
        raise NotRunning(
            f"the post room of {state} has ended (pid {server.pid})", remedy=command(state, "up")
        )
    return server


def command(state: Path, words: str) -> str:
    """The command `postroom words` for the post room on `state`, as a person types it."""
    try:
        usual = default_state().absolute() == state
    except EnvironmentFault:
        usual = False
    return f"postroom {words}" if usual else f"postroom --state {shlex.quote(str(state))} {words}"


def _read_private(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise NotRunning(
            f"no post room runs on {path.parent}", remedy=command(path.parent, "up")
        ) from None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        _check_private(path, os.fstat(descriptor))
        return file.read(MAX_BYTES)


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise EnvironmentFault(f"{path} is not a regular file")
    if found.st_mode & 0o077:
        raise EnvironmentFault(
            f"{path} holds a credential and other users can read it",
            remedy=f"chmod 600 {path}, then restart the post room",
        )
    if os.geteuid() not in (0, found.st_uid):
        raise EnvironmentFault(f"{path} belongs to another user")


def _parse(path: Path, content: bytes) -> ServerAddress:
    try:
        record = json.loads(content)
        server = ServerAddress(
            str(record["url"]).rstrip("/"),
            int(record["pid"]),
            str(record["token"]),
            os.environ.get("POSTROOM_CA") or str(record.get("ca", "")),
            tuple(map(str, record.get("listen", ()))),
            tuple(map(str, record.get("notes", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentFault(
            f"{path} is not what a post room writes", remedy="remove it, then: postroom up"
        ) from error
    if server.pid <= 0 or not server.url.startswith(("http://", "https://")):
        raise EnvironmentFault(f"{path} names no address and process", remedy="remove it")
    return server


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's process, and alive
    return not _zombie(pid)


def _zombie(pid: int) -> bool:
    """Whether the process has ended and waits for its parent to notice (proc_pid_stat(5), field 3)."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False  # no procfs here: the result of `kill` stands
    return content.rpartition(")")[2].split()[0] in ("Z", "X")
