"""Configuration of the embedded nats-server: our choices, and the file made from them; what its log says at its end."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom.errors import EnvironmentFault, PortTaken, ServerFailed, StateUnwritable
from postroom.protocol.limits import MAX_CONTROL_LINE, MAX_PAYLOAD

AUTH_TIMEOUT = 10
"""Seconds from a connection's begin to its credential. The default of 2 would cut off some of a few hundred agents that
reconnect at once to a busy machine.
"""

LOG_BYTES = 16 * 1024 * 1024
LOG_FILES = 4

LAST_LINES = 20
"""Lines of the log that an error shows."""

_LOG_TAIL = 64 * 1024


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of the server's one listener, hence of every connection to it.

    Attributes:
        file: PEM of its certificate (chain) and key, 0600.
        name: the certificate's, by which Postroom checks it.
    """

    file: Path
    client: ssl.SSLContext
    name: str


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How an embedded server runs.

    Attributes:
        folder: for the server alone: configuration, accounts, streams, log.
        port: 0 for any free one.
        system_account: public key of the system account.
        preload: account public key -> account JWT, known from the start.
        proxies: public keys of trusted proxies (NATS, ADR-55): the gateway's.
        tls: None for connections in clear text.
        memory: keep no stream in a file: records end with the server.
        max_payload: bytes of the largest message.
        max_store: bytes on disk: a bound for the sum of the limits of all streams.
        max_memory: the same for streams in memory. Each stream has a limit of its own.
        log_bytes: size at which the log is rotated; `LOG_FILES` are kept.
        start_timeout: seconds until it must be ready; a large store takes some of them.
        lock_timeout: seconds to wait for another server that still has the store open.
        program: the nats-server to run; None searches for one.
    """

    folder: Path
    host: str
    port: int
    operator_jwt: str
    system_account: str
    preload: Mapping[str, str] = field(default_factory=dict)
    proxies: tuple[str, ...] = ()
    tls: ServerTls | None = None
    memory: bool = False
    max_payload: int = MAX_PAYLOAD
    max_store: int = 1024**4
    max_memory: int = 1024**4
    log_bytes: int = LOG_BYTES
    start_timeout: float = 30.0
    lock_timeout: float = 0.0
    program: Path | None = None

    @property
    def near(self) -> str:
        """The address by which this machine reaches it."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    @property
    def file(self) -> Path:
        """The generated configuration file, 0600."""
        return self.folder / "nats-server.json"

    @property
    def store(self) -> Path:
        """JetStream's folder."""
        return self.folder / "store"

    @property
    def lock(self) -> Path:
        """The lock of the server that has the store open."""
        return self.folder / "store.lock"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.folder / "nats-server.log"

    @property
    def stderr(self) -> Path:
        """The server's output before it has a log, and after a crash."""
        return self.folder / "nats-server.stderr"

    @property
    def accounts(self) -> Path:
        """The resolver's folder of account JWTs."""
        return self.folder / "accounts"

    @property
    def ports(self) -> Path:
        """Folder in which the server writes its ports."""
        return self.folder / "ports"


def render(config: ServerConfig) -> str:
    """The configuration file; NATS reads JSON as its own format.

    There is no monitoring port: it would answer anyone on this machine, and the system account gives the same answers.
    """
    document: dict[str, Any] = {
        "host": config.host,
        "port": config.port or -1,
        "server_name": "postroom",
        "ports_file_dir": str(config.ports),
        "operator": config.operator_jwt,
        "system_account": config.system_account,
        "resolver": {
            "type": "full",
            "dir": str(config.accounts),
            "allow_delete": True,
            "interval": "2m",
        },
        "resolver_preload": dict(config.preload),
        "jetstream": _jetstream(config),
        "authorization": {"timeout": AUTH_TIMEOUT},
        "max_control_line": MAX_CONTROL_LINE,
        "max_payload": config.max_payload,
        "lame_duck_grace_period": "1s",
        "lame_duck_duration": "30s",  # the least that the server accepts
        "log_file": str(config.log),
        "log_size_limit": config.log_bytes,
        "log_max_num": LOG_FILES,
    }
    if config.proxies:
        document["proxies"] = {"trusted": [{"key": key} for key in config.proxies]}
    if config.tls is not None:
        document["tls"] = _tls(config.tls)
    # Not \u escapes: the server's parser does not know them.
    return json.dumps(document, indent=1, ensure_ascii=False)


def _tls(tls: ServerTls) -> dict[str, Any]:
    return {
        "cert_file": str(tls.file),
        "key_file": str(tls.file),
        "handshake_first": True,  # nothing goes in clear text, not even the greeting
        "min_version": "1.2",
        "timeout": 5,
    }


def _jetstream(config: ServerConfig) -> dict[str, Any]:
    common: dict[str, Any] = {
        "store_dir": str(config.store),
        "max_memory_store": config.max_memory,
    }
    if config.memory:
        return common | {"max_file_store": 0}
    # An acknowledgement must mean disk; the default flushes every two minutes.
    return common | {"max_file_store": config.max_store, "sync_interval": "always"}


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
