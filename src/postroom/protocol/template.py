"""Worker templates: what the TOML may say, checked key by key (docs/architecture.md, Templates).

[worker]       name, project, description, rerun, attempts, cancel_grace, public
[workstation]  command, adapter, confirm, patience, window, feed, env, files, mcps, skills, instructions
[workstation.mcps.NAME]  command or url, env, credential
[compute]      sandbox, isolation, read_only, memory_mb, processes, cpu_percent, disk_mb, wall_seconds
[sidecar]      restart_limit, auto_approve, auto_deny, autonomous, approval_timeout, approval_default, stall_after,
               turn_limit, budget_tokens, budget_usd
[program]      name, install, tested        the program that `postroom spawn` finds (`protocol.template_needs`)
[keys.NAME]    url, header, variable, obtain, set
[overrides]    egress, credentials; else parameters with their defaults: `{parameter}` is replaced in the other
               tables' texts

A parameter that is a whole entry of `compute.read_only`, `overrides.egress` or `overrides.credentials` stands for as
many entries as its value has lines, and one that is a whole value of `workstation.env` and empty sets nothing.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from postroom.errors import InvalidTemplate
from postroom.protocol.approvals import DEFAULTS
from postroom.protocol.egress import AllowList
from postroom.protocol.ids import NAME, check_name, check_nick
from postroom.protocol.limits import (
    MAX_ATTEMPTS,
    MAX_CANCEL_GRACE,
    MAX_TEMPLATE_BYTES,
    MAX_WINDOW,
)
from postroom.protocol.similar import did_you_mean

LINE_ADAPTERS = ("jsonl", "text")
TURN_ADAPTERS = ("acp", "claude", "codex", "codex-exec", "gemini", "goose", "opencode")
ADAPTERS = LINE_ADAPTERS + TURN_ADAPTERS
"""Adapters that Postroom brings."""
ADAPTER_GROUP = "postroom.adapters"
"""The group of the entry points by which other packages bring adapters (docs/adapters.md)."""
CONFIRMATIONS = ("explicit", "read")
LEVELS = ("enforced", "partial", "none")
"""Levels of a wall, strongest first (`postroom.sandbox.port.Level`)."""
MAX_NUMBER = 2**31 - 1
"""The largest whole number in a template; more would overflow in the limits of the operating system."""
EGRESS_PLACE = "${POSTROOM_EGRESS}"
"""In `workstation.env` and a coding agent's command: the address inside the sandbox that leads to hosts outside."""

PATIENCE = 60
"""Seconds that a delivered message may stay unconfirmed before the agent gets further ones."""

STALL_AFTER = 300
"""Seconds without an event after which a coding agent in its turn counts as stalled."""

RERUNS = ("safe", "never")
"""Whether a task may be begun again when its worker has died in it; the first is the default."""

ATTEMPTS = 3
"""Attempts at a task that may be lost before it has failed."""

CANCEL_GRACE = 5
"""Seconds for an agent to stop work on a canceled task before it is killed."""

PARAMETER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

_OVERRIDES = frozenset({"egress", "credentials"})
"""Keys of `[overrides]` that are lists of texts and not parameters."""

# table -> key -> type; `None` lets any key through, whose value must be a text.
_SHAPE: dict[str, dict[str, type] | None] = {
    "worker": {
        "name": str,
        "project": str,
        "description": str,
        "rerun": str,
        "attempts": int,
        "cancel_grace": int,
        "public": bool,
    },
    "workstation": {
        "command": list,
        "adapter": str,
        "confirm": str,
        "patience": int,
        "window": int,
        "feed": bool,
        "env": dict,
        "files": list,
        "mcps": Mapping,
        "skills": list,
        "instructions": bool,
    },
    "compute": {
        "sandbox": str,
        "isolation": str,
        "read_only": list,
        "memory_mb": int,
        "processes": int,
        "cpu_percent": int,
        "disk_mb": int,
        "wall_seconds": int,
    },
    "sidecar": {
        "restart_limit": int,
        "auto_approve": list,
        "auto_deny": list,
        "autonomous": bool,
        "approval_timeout": int,
        "approval_default": str,
        "stall_after": int,
        "turn_limit": int,
        "budget_tokens": int,
        "budget_usd": str,
    },
    "program": {"name": str, "install": str, "tested": str, "base": str},
    "keys": None,
    "overrides": None,
}

KEY_SHAPE: dict[str, type] = {
    "url": str,
    "header": str,
    "variable": str,
    "obtain": str,
    "set": dict,
}
"""Keys of a table `[keys.NAME]`."""

_BY_LINES = (("compute", "read_only"), ("overrides", "egress"), ("overrides", "credentials"))
"""Lists in which a parameter may stand for several entries, or none."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server for a coding agent: a program in the sandbox, or a URL outside.

    Attributes:
        command: program and arguments; () for a server at `url`.
        url: its host is one that the worker may reach.
        credential: name of the credential that the gateway adds to requests to `url`, "" for none.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    credential: str = ""


@dataclass(frozen=True, slots=True)
class Template:
    """A checked template with its parameters filled in.

    Attributes:
        name: nick if the spawner gives none.
        project: id, "" for none.
        public: its card over HTTP is for everybody, also without a key.
        command: program and arguments of the agent; runs in the workspace.
        adapter: the language of the agent's stdin and stdout.
        confirm: what confirms a message: `explicit` (the agent confirms it, or its run ends well) or `read`.
        patience: seconds for which an unconfirmed message keeps further ones waiting, 0 for no limit.
        window: messages that the agent may hold unconfirmed before the next one waits.
        feed: the agent also gets the posts of its project.
        env: environment of the agent, beside the sandbox's.
        files: names of files next to the template; they appear read-only in `/opt/agent`.
        read_only: host folders and files that appear at the same path.
        sandbox: provider, "" for the post room's default.
        isolation: least level of the wall: `enforced`, `partial` or `none`; "" for the post room's default.
        memory_mb, processes, disk_mb: limits, 0 for none.
        cpu_percent: share of one processor for all its processes together, 0 for no limit.
        wall_seconds: time from its start to its end, 0 for no limit.
        egress: hosts that it may reach through the gateway, those of `servers` among them; see `docs/agents.md`.
        credentials: names of credentials that the gateway adds to its requests, those of `servers` among them.
        interactive: there is a `[sidecar]` table.
        restart_limit: restarts of an agent that fails without confirming a message in between.
        servers: MCP servers for the agent's own configuration; their names are in `mcps`, too.
        instructions: a coding agent is told of its colleagues and of `postroom-agent`.
        auto_approve, auto_deny: patterns of what a coding agent may do, or may not do, without asking
            (`sidecar.turns.policy`); it asks for all else.
        autonomous: it asks for nothing.
        approval_timeout: seconds until an approval that nobody answers expires, 0 for never.
        approval_default: `deny` or `allow`: what an expired one counts as.
        stall_after: seconds without an event after which an agent in its turn counts as stalled, 0 for never.
        turn_limit: seconds that a turn may take, 0 for no limit.
        budget_tokens, budget_usd: what the agent may use in all; 0 and "" for no bound.
        rerun: `safe`, or `never`: a task is not begun again unless the agent goes on in its session.
        attempts: attempts at a task that may be lost.
        cancel_grace: seconds to stop work on a canceled task.
    """

    name: str
    command: tuple[str, ...]
    project: str = ""
    description: str = ""
    public: bool = False
    adapter: str = "jsonl"
    confirm: str = "explicit"
    patience: int = PATIENCE
    window: int = 1
    feed: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    mcps: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    sandbox: str = ""
    read_only: tuple[str, ...] = ()
    memory_mb: int = 0
    processes: int = 0
    isolation: str = ""
    cpu_percent: int = 0
    disk_mb: int = 0
    wall_seconds: int = 0
    egress: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    interactive: bool = False
    restart_limit: int = 3
    servers: tuple[McpServer, ...] = ()
    instructions: bool = True
    auto_approve: tuple[str, ...] = ()
    auto_deny: tuple[str, ...] = ()
    autonomous: bool = False
    approval_timeout: int = 0
    approval_default: str = "deny"
    stall_after: int = STALL_AFTER
    turn_limit: int = 0
    budget_tokens: int = 0
    budget_usd: str = ""
    rerun: str = RERUNS[0]
    attempts: int = ATTEMPTS
    cancel_grace: int = CANCEL_GRACE


def parse_template(text: str, values: Mapping[str, str] | None = None) -> Template:
    """The template in `text`, with `values` instead of the defaults of `[overrides]`.

    Raises:
        InvalidTemplate: bad TOML, an unknown table or key, a wrong type, a value out of range, or a value for a
            parameter that the template does not declare. The message names the place.
    """
    if not text.strip():
        raise InvalidTemplate("the template is empty", remedy="docs/agents.md shows one")
    try:
        if len(text.encode()) > MAX_TEMPLATE_BYTES:
            raise InvalidTemplate(f"the template is over {MAX_TEMPLATE_BYTES} bytes")
        document = tomllib.loads(text)
    # Deep nesting and very long numbers raise errors beside the reader's own.
    except (ValueError, RecursionError) as error:
        raise InvalidTemplate(f"the template is not TOML: {error}") from error
    _check_shape(document)
    return _build(_filled(document, _parameters(document, values or {})))


def declared(text: str) -> frozenset[str]:
    """The parameters that a template declares; none for an invalid template."""
    try:
        overrides = tomllib.loads(text).get("overrides", {})
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(overrides) - _OVERRIDES if isinstance(overrides, dict) else frozenset()


def template_adapter(text: str) -> str:
    """The adapter that a template names; raises InvalidTemplate for one that is not TOML."""
    try:
        return tomllib.loads(text).get("workstation", {}).get("adapter", "jsonl")
    except (ValueError, RecursionError) as error:
        raise InvalidTemplate(f"the template is not TOML: {error}") from error


def _check_shape(document: dict[str, Any]) -> None:
    for table, content in document.items():
        if table not in _SHAPE:
            raise InvalidTemplate(f"unknown table [{table}]", remedy=_nearest(table, _SHAPE))
        if not isinstance(content, dict):
            raise InvalidTemplate(f"{table} must be a table: [{table}]")
        if table == "keys":
            _check_keys(content)
        elif (keys := _SHAPE[table]) is not None:
            _check_table(content, keys, table)
        else:
            for key, value in content.items():
                _expect(value, list if key in _OVERRIDES else str, f"{table}.{key}")


def _check_keys(tables: dict[str, Any]) -> None:
    for name, table in tables.items():
        where = f"keys.{check_name(name, 'key')}"
        if not isinstance(table, dict):
            raise InvalidTemplate(f"{where} must be a table: [{where}]")
        _check_table(table, KEY_SHAPE, where)


def _check_table(table: dict[str, Any], shape: Mapping[str, type], where: str) -> None:
    for key, value in table.items():
        if key not in shape:
            raise InvalidTemplate(f"unknown key {key!r} in [{where}]", remedy=_nearest(key, shape))
        _expect(value, shape[key], f"{where}.{key}")


_TYPE_NAMES: dict[type, str] = {
    str: "a text",
    list: "a list of texts",
    Mapping: "a list of texts, or tables",
    dict: "a table of texts",
    bool: "true or false",
    int: f"a whole number from 0 to {MAX_NUMBER}",
}


def _expect(value: object, kind: type, where: str) -> None:
    if kind is Mapping:  # tables are checked where they are read
        kind = dict if isinstance(value, dict) else list
        if kind is dict:
            return
    fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if fits and isinstance(value, list):
        fits = all(isinstance(item, str) for item in value)
    if fits and isinstance(value, dict):
        fits = all(isinstance(item, str) for item in value.values())
    if fits and isinstance(value, int):
        fits = 0 <= value <= MAX_NUMBER
    if not fits:
        remedy = _as_list(value, where) if kind is list and isinstance(value, str) else ""
        raise InvalidTemplate(f"{where} must be {_TYPE_NAMES[kind]}", remedy=remedy)


def _as_list(text: str, where: str) -> str:
    """How to write a text that was meant as a list."""
    words = [text]
    if where == "workstation.command":
        with suppress(ValueError):  # a quote without its end
            words = shlex.split(text)
    return f"{where.rpartition('.')[2]} = {json.dumps(words, ensure_ascii=False)}"


def _nearest(word: str, known: Mapping[str, object]) -> str:
    return did_you_mean(word, known, form=repr) or "known: " + ", ".join(sorted(known))


def _parameters(document: dict[str, Any], values: Mapping[str, str]) -> dict[str, str]:
    overrides = document.get("overrides", {})
    declared: dict[str, str] = {k: v for k, v in overrides.items() if k not in _OVERRIDES}
    for key in values:
        if key not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise InvalidTemplate(
                f"the template has no parameter {key!r}", remedy=f"[overrides] declares: {known}"
            )
        if not _is_passable(values[key]):
            raise InvalidTemplate(
                f"the value of the parameter {key!r} cannot be passed to a program"
            )
    return declared | dict(values)


def _is_passable(text: str) -> bool:
    """Whether it can be an argument, a path or an environment value: Unicode without NUL."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _filled(document: dict[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """The document with its parameters filled in; see above for those that are a whole entry."""
    filled = _fill(document, parameters)
    for table, key in _BY_LINES:
        if (entries := document.get(table, {}).get(key)) is not None:
            filled[table][key] = [line for entry in entries for line in _entries(entry, parameters)]
    env = document.get("workstation", {}).get("env", {})
    for name, text in env.items():
        if PARAMETER.fullmatch(text) and not filled["workstation"]["env"][name]:
            del filled["workstation"]["env"][name]
    return filled


def _entries(text: str, parameters: Mapping[str, str]) -> list[str]:
    place = PARAMETER.fullmatch(text)
    if place is not None and place[1] in parameters:
        return parameters[place[1]].splitlines()
    return [_fill(text, parameters)]


def _fill(value: Any, parameters: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return PARAMETER.sub(lambda found: parameters.get(found[1], found[0]), value)
    if isinstance(value, list):
        return [_fill(item, parameters) for item in value]
    if isinstance(value, dict):
        return {key: _fill(item, parameters) for key, item in value.items()}
    return value


def _build(document: dict[str, Any]) -> Template:
    worker = document.get("worker", {})
    station = document.get("workstation", {})
    compute = document.get("compute", {})
    sidecar = document.get("sidecar", {})
    overrides = document.get("overrides", {})
    for table, key in (("worker", "name"), ("workstation", "command")):
        if not document.get(table, {}).get(key):
            raise InvalidTemplate(f"the template has no {table}.{key}")
    if not station["command"][0] or not all(map(_is_passable, station["command"])):
        raise InvalidTemplate("workstation.command cannot be started: an empty name or a NUL")
    adapter = _adapter(station.get("adapter", "jsonl"))
    project = worker.get("project", "")
    servers = _servers(station.get("mcps", ()))
    # What a server of the template needs is part of what the template says of egress and credentials.
    outside = [server.url.partition("?")[0] for server in servers if server.url]
    egress = tuple(dict.fromkeys([*overrides.get("egress", ()), *outside]))
    AllowList.parse(egress)
    _check_environments(station.get("env", {}), servers, egress)
    _check_egress(station["command"], egress, "workstation.command")
    credentials = [*overrides.get("credentials", ()), *(s.credential for s in servers)]
    return Template(
        name=check_nick(worker["name"]),
        project=check_name(project, "project") if project else "",
        description=worker.get("description", ""),
        public=worker.get("public", False),
        command=tuple(station["command"]),
        adapter=adapter,
        confirm=_choice(station.get("confirm", "explicit"), CONFIRMATIONS, "workstation.confirm"),
        patience=station.get("patience", PATIENCE),
        window=_window(station.get("window", 1), adapter),
        feed=station.get("feed", False),
        env=station.get("env", {}),
        files=tuple(_file_name(name) for name in station.get("files", ())),
        mcps=tuple(station.get("mcps", ())),
        skills=tuple(station.get("skills", ())),
        sandbox=_sandbox(compute.get("sandbox", "")),
        read_only=tuple(_absolute(path) for path in compute.get("read_only", ())),
        memory_mb=compute.get("memory_mb", 0),
        processes=compute.get("processes", 0),
        isolation=_isolation(compute.get("isolation", "")),
        cpu_percent=compute.get("cpu_percent", 0),
        disk_mb=compute.get("disk_mb", 0),
        wall_seconds=compute.get("wall_seconds", 0),
        egress=egress,
        credentials=tuple(
            check_name(name, "credential") for name in dict.fromkeys(credentials) if name
        ),
        interactive="sidecar" in document,
        restart_limit=sidecar.get("restart_limit", 3),
        servers=servers,
        instructions=station.get("instructions", True),
        auto_approve=tuple(sidecar.get("auto_approve", ())),
        auto_deny=tuple(sidecar.get("auto_deny", ())),
        autonomous=sidecar.get("autonomous", False),
        approval_timeout=sidecar.get("approval_timeout", 0),
        approval_default=_choice(
            sidecar.get("approval_default", DEFAULTS[0]), DEFAULTS, "sidecar.approval_default"
        ),
        stall_after=sidecar.get("stall_after", STALL_AFTER),
        turn_limit=sidecar.get("turn_limit", 0),
        budget_tokens=sidecar.get("budget_tokens", 0),
        budget_usd=_dollars(sidecar.get("budget_usd", "")),
        rerun=_choice(worker.get("rerun", RERUNS[0]), RERUNS, "worker.rerun"),
        attempts=_between(worker.get("attempts", ATTEMPTS), MAX_ATTEMPTS, "worker.attempts"),
        cancel_grace=_between(
            worker.get("cancel_grace", CANCEL_GRACE), MAX_CANCEL_GRACE, "worker.cancel_grace"
        ),
    )


def _adapter(name: str) -> str:
    """A name of ours, or one that an entry point may have: only the sidecar knows those."""
    if NAME.fullmatch(name) is None:
        raise InvalidTemplate(
            f"workstation.adapter is {name!r}", remedy="one of " + ", ".join(ADAPTERS)
        )
    return name


_SERVER: dict[str, type] = {"command": list, "url": str, "env": dict, "credential": str}


def _servers(tables: object) -> tuple[McpServer, ...]:
    """The servers of `[workstation.mcps.NAME]`; none where `mcps` is a list of names for the card."""
    if not isinstance(tables, dict):
        return ()
    return tuple(_server(name, table) for name, table in tables.items())


def _server(name: str, table: object) -> McpServer:
    where = f"workstation.mcps.{name}"
    check_name(name, "MCP server")
    if not isinstance(table, dict):
        raise InvalidTemplate(f"{where} must be a table: [{where}]")
    _check_table(table, _SERVER, where)
    if bool(table.get("command")) == bool(table.get("url")):
        raise InvalidTemplate(f"[{where}] has to have a command or a url")
    url = table.get("url", "")
    if table.get("credential") and not url:
        raise InvalidTemplate(
            f"{where}.credential is for a url: the gateway adds it to requests outside",
            remedy="for a command, name it in overrides.credentials",
        )
    if url and "://" not in url:
        raise InvalidTemplate(f"{where}.url is {url!r}", remedy="such as https://example.com/mcp")
    return McpServer(
        name,
        tuple(table.get("command", ())),
        url,
        table.get("env", {}),
        table.get("credential", ""),
    )


def _dollars(text: str) -> str:
    try:
        if text and not 0 < float(text) < MAX_NUMBER:
            raise ValueError
    except ValueError:
        raise InvalidTemplate(
            f"sidecar.budget_usd is {text!r}", remedy='a number of dollars, such as "2.50"'
        ) from None
    return text


def _choice(value: str, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        raise InvalidTemplate(f"{where} is {value!r}", remedy="one of " + ", ".join(known))
    return value


def _window(window: int, adapter: str) -> int:
    if not 1 <= window <= MAX_WINDOW:
        raise InvalidTemplate(f"workstation.window is {window}", remedy=f"1 to {MAX_WINDOW}")
    if window > 1 and adapter == "text":
        raise InvalidTemplate(
            "workstation.window is for the adapter jsonl: with text each message has a run of its own",
            remedy="leave it out",
        )
    return window


def _between(number: int, most: int, where: str) -> int:
    if not 1 <= number <= most:
        raise InvalidTemplate(f"{where} is {number}", remedy=f"1 to {most}")
    return number


def _isolation(level: str) -> str:
    return _choice(level, LEVELS, "compute.isolation") if level else ""


def _sandbox(name: str) -> str:
    if name and NAME.fullmatch(name) is None:
        raise InvalidTemplate(f"compute.sandbox {name!r} is not the name of a provider")
    return name


def _check_environments(
    env: Mapping[str, str], servers: tuple[McpServer, ...], egress: tuple[str, ...]
) -> None:
    _check_environment(env, egress, "workstation.env")
    for server in servers:
        _check_environment(server.env, egress, f"workstation.mcps.{server.name}.env")


def _check_environment(env: Mapping[str, str], egress: tuple[str, ...], where: str) -> None:
    for key, value in env.items():
        if not key or "=" in key or "\0" in key + value:
            raise InvalidTemplate(f"{where} has an impossible name or value: {key!r}")
        if key.startswith("POSTROOM_"):
            raise InvalidTemplate(f"{where} may not set {key}: Postroom sets it")
        _check_egress([value], egress, f"{where}.{key}")


def _check_egress(texts: list[str], egress: tuple[str, ...], where: str) -> None:
    if not egress and any(EGRESS_PLACE in text for text in texts):
        raise InvalidTemplate(
            f"{where} leads outside, and [overrides] allows no host",
            remedy='name it there, such as egress = ["api.example.com"]',
        )


def _file_name(name: str) -> str:
    if _FILE_NAME.fullmatch(name) is None:
        raise InvalidTemplate(
            f"workstation.files names {name!r}", remedy="plain names of files next to the template"
        )
    return name


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidTemplate(
            f"compute.read_only names {path!r}", remedy="an absolute path without .."
        )
    if len(PurePosixPath(path).parts) == 1:  # also "//" and "/./"
        raise InvalidTemplate(
            "compute.read_only names the root folder", remedy="name the folder that is meant"
        )
    return path
