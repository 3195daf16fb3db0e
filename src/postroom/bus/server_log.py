"""The last lines of the embedded server's log, and the error that they mean."""

from __future__ import annotations

from pathlib import Path

from postroom.bus.server_config import ServerConfig
from postroom.errors import EnvironmentFault, PortTaken, ServerFailed, StateUnwritable

LAST_LINES = 20
"""Lines of the log that an error shows."""

_LOG_TAIL = 64 * 1024


def last_lines(config: ServerConfig, pid: int) -> str:
    """The last lines that the server `pid` wrote to its log and to standard error.

    Clients choose some of the words in them, so control characters are replaced.
    """
    logged = [line for line in _tail(config.log) if line.startswith(f"[{pid}] ")]
    lines = logged[-LAST_LINES:] + _tail(config.stderr)[-LAST_LINES:]
    shown = ("".join(c if c.isprintable() else "\ufffd" for c in line) for line in lines)
    return "\n".join(shown) or "it wrote no log"


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_TAIL))
            return file.read(_LOG_TAIL).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


NO_SPACE = ("no space left on device", "disk quota exceeded")
"""The words of server and system for a full disk, in lower case."""

# The server's words for a fault of its folder.
_UNWRITABLE = (*NO_SPACE, "permission denied", "read-only file system", "not a directory")


def explain_end(config: ServerConfig, pid: int, status: int) -> EnvironmentFault:
    """Why the server `pid` ended with `status` before it was ready."""
    said = last_lines(config, pid)
    if "address already in use" in said:
        return port_taken(config)
    if any(reason in said.lower() for reason in _UNWRITABLE):
        return StateUnwritable(
            f"nats-server cannot write to {config.folder}: {said}",
            remedy="free space, or choose another state folder",
        )
    return ServerFailed(f"nats-server ended with status {status}: {said}")


def port_taken(config: ServerConfig) -> PortTaken:
    """The error for a port that another process listens on."""
    return PortTaken(
        f"port {config.port} on {config.host} is taken by another process",
        remedy="choose another: --nats-port N, or 0 for any free one",
    )
