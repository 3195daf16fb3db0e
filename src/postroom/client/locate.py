"""Finds the running post room: its socket and the operator's credential, from the state folder.

`server.json` holds a secret. A file that other users can read, or that another user wrote, is refused, since its
address could lead anywhere. A killed post room leaves it: that one runs is told by its lock alone, since its process id
and its port may be another user's by now.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import EnvironmentFault, NotRunning, ProtocolViolation
from postroom.settings import default_state

if TYPE_CHECKING:
    import ssl

FILE = "server.json"
LOCK = "lock"
SOCKET = "control.sock"
"""The owner's way in, in the state folder."""

MAX_BYTES = 64 * 1024

CLI_AGENT = "postroom-cli"
"""What the `User-Agent` of Postroom's command begins with."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a post room.

    Attributes:
        url: of its HTTP interface, without a slash at the end.
        ca: path of the authority to trust if the URL is `https`; "" for those that this system trusts.
        pid: its process; 0 on another machine.
        token: the API key; left out of `repr` so that no log shows it.
        listen: URLs for others, of the API and of the bus.
        notes: notes about this start for people, a sentence each.
        logins: what others type to use it from their machines.
        authority: PEM of the only authority to trust, kept by `postroom login`; "" for what `ca` says.
        socket: path of its unix socket, which is used in place of `url`; "" on another machine.
        owner: uid of the user whose process has to listen there.
    """

    url: str
    pid: int
    token: str = field(repr=False)
    ca: str = ""
    listen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    authority: str = field(default="", repr=False)
    socket: str = ""
    owner: int = -1

    @property
    def origin(self) -> str:
        """What calls begin with: over its socket there is no TLS."""
        return f"http://{self.url.partition('://')[2]}" if self.socket else self.url

    def context(self) -> ssl.SSLContext:
        """How its certificate is checked.

        Raises:
            InvalidInput: `ca` holds no certificates.
        """
        from postroom.tls import client_context, pinned_context

        if self.authority:
            return pinned_context(self.authority)
        return client_context(Path(self.ca) if self.ca else None)

    def silent(self) -> NotRunning:
        """The error when nobody listens there."""
        far = "is it up there (postroom up --listen ADDR), and is the way to it open?"
        return NotRunning(
            f"no post room answers at {self.url}", remedy="postroom up" if self.pid else far
        )

    def check(self, descriptor: int) -> None:
        """Raise ProtocolViolation unless a process of its owner is at the other end of that socket."""
        from postroom.http.unix import peer_uid

        if (uid := peer_uid(descriptor)) != self.owner:
            raise ProtocolViolation(
                f"what listens at {self.socket} is not the post room: it belongs to the user with the uid {uid}",
                remedy=f"see who can write {Path(self.socket).parent}, then start the post room again",
            )

    def distrust(self, doubt: str) -> ProtocolViolation:
        """The error when a server there shows a certificate that is not trusted."""
        remedy = "POSTROOM_CA names another authority to trust"
        if self.authority:
            doubt += "; this login trusts one authority alone"
            remedy = (
                "ask who runs it; if it has a new authority (postroom tls status, there): "
                f"postroom login {self.url}"
            )
        elif not self.pid:
            remedy = f"postroom login {self.url}"
        return ProtocolViolation(
            f"the server at {self.url} is not the post room: {doubt}", remedy=remedy
        )


def locate(state: Path) -> ServerAddress:
    """The post room that runs on the folder `state`.

    Raises:
        NotRunning: none runs, or it ended without tidying up.
        EnvironmentFault: the file is not private to this user, or not in the form that a post room writes.
    """
    path = state / FILE
    found = _read_private(path, ", then restart the post room")
    if found is None:
        raise NotRunning(f"no post room runs on {state}", remedy=command(state, "up"))
    content, owner = found
    server = replace(_parse(path, content), socket=str(state / SOCKET), owner=owner)
    if not runs(state):
        raise NotRunning(
            f"the post room of {state} has ended without a word (pid {server.pid})",
            remedy=command(state, "up"),
        )
    return server


def runs(state: Path) -> bool:
    """Whether a post room has the folder `state` open: as long as its process lives, it has the lock."""
    try:
        descriptor = os.open(state / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def command(state: Path, words: str) -> str:
    """The command `postroom words` for the post room on `state`, as a person types it."""
    try:
        usual = default_state().absolute() == state
    except EnvironmentFault:
        usual = False
    return f"postroom {words}" if usual else f"postroom --state {shlex.quote(str(state))} {words}"


def read_private(path: Path, *, then: str = "", limit: int = MAX_BYTES) -> bytes | None:
    """The content of a file with a credential, None if there is none.

    Args:
        then: what else is to be done when others could read it.
        limit: bytes that are read at most.

    Raises:
        EnvironmentFault: other users can read it, or another user wrote it.
    """
    found = _read_private(path, then, limit)
    return None if found is None else found[0]


def _read_private(path: Path, then: str, limit: int = MAX_BYTES) -> tuple[bytes, int] | None:
    """As `read_private`, with the uid of the file's owner."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        _check_private(path, found, then)
        return file.read(limit), found.st_uid


def _check_private(path: Path, found: os.stat_result, then: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise EnvironmentFault(f"{path} is not a regular file")
    if found.st_mode & 0o077:
        raise EnvironmentFault(
            f"{path} holds a credential and other users can read it",
            remedy=f"chmod 600 {path}{then}",
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
            tuple(map(str, record.get("logins", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentFault(
            f"{path} is not what a post room writes", remedy="remove it, then: postroom up"
        ) from error
    if server.pid <= 0 or not server.url.startswith(("http://", "https://")):
        raise EnvironmentFault(f"{path} names no address and process", remedy="remove it")
    return server
