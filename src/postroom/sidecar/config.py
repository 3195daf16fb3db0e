"""The sidecar's configuration: one JSON file, read once and removed before the agent starts.

The file holds the worker's credential. Sidecar and agent are one trust domain, but a secret that the agent
never sees cannot end up in its transcript.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from postroom.errors import InvalidInput
from postroom.protocol.approvals import DEFAULTS
from postroom.protocol.ids import check_name, check_uid
from postroom.protocol.limits import MAX_WINDOW
from postroom.protocol.template import (
    ATTEMPTS,
    CANCEL_GRACE,
    LINE_ADAPTERS,
    PATIENCE,
    RERUNS,
    STALL_AFTER,
    McpServer,
)
from postroom.sidecar.adapters.registry import turn_adapter
from postroom.sidecar.execd import ExecdAddress

ENVIRONMENT = "POSTROOM_SIDECAR_CONFIG"
"""Environment variable with the path of the configuration file."""

LOG_LEVELS = ("debug", "info", "warning", "error")

CONFIRMATIONS = ("explicit", "read")
"""The ways to confirm a message; the first is the default."""


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """What the template says of the turns of a coding agent: `protocol.template` has the same names.

    Attributes:
        rules: patterns that people have added to `auto_approve`.
        autonomy: what people have set, by task (`protocol.autonomy`).
        budget_usd: 0 for no bound.
    """

    servers: tuple[McpServer, ...] = ()
    instructions: bool = True
    auto_approve: tuple[str, ...] = ()
    auto_deny: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    autonomous: bool = False
    autonomy: Mapping[str, str] = field(default_factory=dict, hash=False)
    approval_timeout: float = 0.0
    approval_default: str = DEFAULTS[0]
    stall_after: float = STALL_AFTER
    turn_limit: float = 0.0
    budget_tokens: int = 0
    budget_usd: float = 0.0

    @classmethod
    def parse(cls, record: object) -> Self:
        """The configuration in a decoded JSON document; raises InvalidInput, ValueError or TypeError."""
        if not record:
            return cls()
        if not isinstance(record, dict):
            raise InvalidInput("what the sidecar is told of turns is not an object")
        default = str(record.get("approval_default") or DEFAULTS[0])
        if default not in DEFAULTS:
            raise InvalidInput(f"there is no default {default!r} of approvals")
        return cls(
            servers=tuple(_server(each) for each in record.get("servers") or ()),
            instructions=record.get("instructions", True) is True,
            auto_approve=tuple(map(str, record.get("auto_approve") or ())),
            auto_deny=tuple(map(str, record.get("auto_deny") or ())),
            rules=tuple(map(str, record.get("rules") or ())),
            autonomous=record.get("autonomous") is True,
            autonomy={
                str(task): str(word) for task, word in (record.get("autonomy") or {}).items()
            },
            approval_timeout=float(record.get("approval_timeout") or 0),
            approval_default=default,
            stall_after=float(record.get("stall_after", STALL_AFTER)),
            turn_limit=float(record.get("turn_limit") or 0),
            budget_tokens=int(record.get("budget_tokens") or 0),
            budget_usd=float(record.get("budget_usd") or 0),
        )


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The agent program.

    Attributes:
        cwd: working folder, "" for the workspace.
        confirm: `explicit` (the agent says so, or its run ends well) or `read` (the agent has read the message).
        patience: seconds for which an unconfirmed message holds back further ones, 0 for no limit.
        window: messages that the agent may hold before further ones wait.
        restart_limit: restarts in a row without a confirmed message before the agent counts as failed.
        feed: the agent gets the posts of its projects.
        turns: rules of a coding agent.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    adapter: str = "jsonl"
    confirm: str = "explicit"
    patience: float = PATIENCE
    window: int = 1
    restart_limit: int = 3
    feed: bool = False
    turns: TurnConfig = field(default_factory=TurnConfig)

    @property
    def in_turns(self) -> bool:
        """Whether it is a coding agent, which works in turns."""
        return self.adapter not in LINE_ADAPTERS

    @property
    def held(self) -> int:
        """The messages that it may hold; what waits for its turn is held, too, so that the agent can look at it."""
        return MAX_WINDOW if self.in_turns else self.window

    @classmethod
    def parse(cls, record: object) -> AgentConfig:
        """The agent's part of the configuration; raises InvalidInput."""
        if not isinstance(record, dict):
            raise InvalidInput("the sidecar's configuration names no agent")
        command = record.get("command")
        if not isinstance(command, list) or not command or not all(map(_is_text, command)):
            raise InvalidInput("the agent's command is not a list of words")
        adapter = str(record.get("adapter") or "jsonl")
        if adapter not in LINE_ADAPTERS:
            turn_adapter(adapter)  # raises where there is none
        confirm = str(record.get("confirm") or CONFIRMATIONS[0])
        if confirm not in CONFIRMATIONS:
            raise InvalidInput(
                f"there is no way to confirm called {confirm!r}", remedy="use explicit or read"
            )
        env = record.get("env") or {}
        if not isinstance(env, dict) or not all(map(_is_text, env.values())):
            raise InvalidInput("the agent's environment is not a table of texts")
        return cls(
            command=tuple(command),
            env=env,
            cwd=str(record.get("cwd") or ""),
            adapter=adapter,
            confirm=confirm,
            patience=float(record.get("patience", PATIENCE)),
            window=int(record.get("window", 1)),
            restart_limit=int(record.get("restart_limit", 3)),
            feed=record.get("feed") is True,
            turns=TurnConfig.parse(record.get("turns")),
        )


@dataclass(frozen=True, slots=True)
class SidecarConfig:
    """The worker's address, its connections, and its agent program.

    Attributes:
        uid, nick, org, project, projects: its address; `project` "" for none.
        jwt, seed: its bus credential; `jwt_expires_at` in epoch seconds, 0 for never.
        token: bearer token for the gateway.
        message_secret: key of its message ids, the same after a restart.
        gateway_socket: Unix socket of the gateway, "" where there is none.
        gateway_address, gateway_ca: its `host:port` and the certificates (PEM) to trust there, for a sandbox on
            another machine. Without socket and address the sidecar dials `nats_url` and `control_url` directly.
        a2a_port: a further loopback port of its A2A server; 0 for none.
        state, workspace: folders; `state` outlives restarts.
        standing: the file that says where its person's branch stands, "" for none.
        owner: uid of the person it works for.
        canaries: the targets of the wall's self-test, {} for no self-test.
        sandbox_level: the level that the sandbox provider claims.
        sandbox_holes: kinds of canaries that the provider is known to let through.
        ports: loopback ports to listen on, () for any free ones.
        stop_grace: seconds for the agent to end by itself.
        card: the worker's Agent Card, {} for none.
        run: id of this start of the worker.
        cancel_grace: seconds for the agent to stop working on a task.
        rerun, attempts: as `protocol.template.Template` has them.
        interactive: the template has a `[sidecar]` table: the control plane wants events, too.
        egress: the template allows connections to some hosts.
        execd: runs commands and works on files; None for the sidecar itself.
    """

    uid: str
    nick: str
    agent: AgentConfig
    state: Path
    message_secret: bytes = field(repr=False)
    org: str = ""
    project: str = ""
    projects: tuple[str, ...] = ()
    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt_expires_at: float = 0.0
    gateway_socket: str = ""
    gateway_address: str = ""
    gateway_ca: str = field(default="", repr=False)
    a2a_port: int = 0
    nats_url: str = ""
    control_url: str = ""
    workspace: str = ""
    standing: str = ""
    owner: str = ""
    canaries: Mapping[str, Any] = field(default_factory=dict)
    sandbox_level: str = ""
    sandbox_holes: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    log_level: str = "info"
    stop_grace: float = 1.5
    card: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    cancel_grace: float = CANCEL_GRACE
    rerun: str = RERUNS[0]
    attempts: int = ATTEMPTS
    interactive: bool = True
    egress: bool = False
    execd: ExecdAddress | None = None

    @classmethod
    def parse(cls, record: object) -> SidecarConfig:
        """The configuration in a decoded JSON document.

        Raises:
            InvalidInput: a value is missing or of the wrong kind; the text repeats no secret.
        """
        if not isinstance(record, dict):
            raise InvalidInput("the sidecar's configuration is not a JSON object")
        project = str(record.get("project") or "")
        projects = record.get("projects") or ([project] if project else [])
        try:
            return cls(
                uid=check_uid(str(record["uid"])),
                nick=str(record["nick"]),
                agent=AgentConfig.parse(record.get("agent")),
                state=Path(str(record["state"])),
                message_secret=_secret(record["message_secret"]),
                project=check_name(project, "project") if project else "",
                projects=tuple(check_name(str(name), "project") for name in projects),
                jwt_expires_at=float(record.get("jwt_expires_at") or 0.0),
                canaries=record.get("canaries") or {},
                sandbox_holes=tuple(map(str, record.get("sandbox_holes") or ())),
                ports=tuple(map(int, record.get("ports") or ())),
                a2a_port=int(record.get("a2a_port") or 0),
                card=dict(record.get("card") or {}),
                stop_grace=float(record.get("stop_grace", 1.5)),
                log_level=_level(record.get("log_level") or "info"),
                run=str(record.get("run") or secrets.token_hex(16)),
                cancel_grace=float(record.get("cancel_grace", CANCEL_GRACE)),
                rerun=_rerun(record.get("rerun") or RERUNS[0]),
                attempts=int(record.get("attempts", ATTEMPTS)),
                interactive=record.get("interactive", True) is True,
                egress=record.get("egress") is True,
                execd=_execd(record.get("execd")),
                **{name: str(record.get(name) or "") for name in _TEXTS},
            )
        except KeyError as error:
            raise InvalidInput(f"the sidecar's configuration has no {error.args[0]!r}") from error
        except (ValueError, TypeError) as error:
            # Not `error`'s own text: it may repeat a value, and the value may be a secret.
            raise InvalidInput(
                "the sidecar's configuration has a value of the wrong kind"
            ) from error


_TEXTS = (
    *("org", "jwt", "seed", "token", "gateway_socket", "gateway_address", "gateway_ca"),
    *("nats_url", "control_url", "workspace", "standing", "owner", "sandbox_level"),
)


def load(path: Path) -> SidecarConfig:
    """Read the configuration and remove the file, valid or not; raises InvalidInput."""
    text = _taken(path)
    try:
        record = json.loads(text)
    except ValueError:
        # Not chained: the decoder's error carries the document, secrets included.
        raise InvalidInput("the sidecar's configuration is not JSON") from None
    execd = record.get("execd") if isinstance(record, dict) else None
    if isinstance(execd, dict) and (file := execd.get("token_file")):
        # In a file of its own: the container, and with it the token, is made after the configuration.
        execd["token"] = _taken(Path(str(file)))
    return SidecarConfig.parse(record)


def _taken(path: Path) -> str:
    """The text of a file, which is removed."""
    try:
        text = path.read_text(encoding="utf-8")
        os.truncate(path, 0)  # in a sandbox the path is a descriptor, which outlives the name
        path.unlink()
    except OSError as error:
        raise InvalidInput(
            f"the sidecar's configuration cannot be taken: {error.strerror}"
        ) from error
    return text


def _execd(record: object) -> ExecdAddress | None:
    if not record:
        return None
    if not isinstance(record, dict):
        raise InvalidInput("the sidecar's configuration does not say where execd is")
    return ExecdAddress(int(record["port"]), str(record.get("token") or ""))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _level(value: object) -> str:
    if value not in LOG_LEVELS:
        raise InvalidInput(f"there is no log level {value!r}", remedy=f"one of {LOG_LEVELS}")
    return str(value)


def _rerun(value: object) -> str:
    if value not in RERUNS:
        raise InvalidInput(f"there is no rerun {value!r}", remedy=f"one of {RERUNS}")
    return str(value)


def _secret(value: object) -> bytes:
    secret = bytes.fromhex(str(value))
    if len(secret) < 16:
        raise InvalidInput("the message secret is too short")
    return secret


def _server(record: Mapping[str, Any]) -> McpServer:
    return McpServer(
        name=str(record["name"]),
        command=tuple(map(str, record.get("command") or ())),
        url=str(record.get("url") or ""),
        env={str(name): str(value) for name, value in (record.get("env") or {}).items()},
        credential=str(record.get("credential") or ""),
    )


_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(text: str, env: Mapping[str, str]) -> str:
    """`text` with the variables of `env` in place of `${NAME}`; an unknown name stays as it is."""
    return _PLACE.sub(lambda place: env.get(place[1], place[0]), text)
