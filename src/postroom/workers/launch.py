"""The start of a worker, prepared: its folders, its sandbox, and the configuration of its sidecar."""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from postroom.directory.cards import Card, build_card
from postroom.errors import InvalidTemplate, StateUnwritable
from postroom.identity.jwt import Credential
from postroom.protocol.limits import MAX_FILES_BYTES
from postroom.protocol.principal import OPERATOR_KEY
from postroom.protocol.template import LINE_ADAPTERS, Template
from postroom.sandbox.never import never_shown, real_name
from postroom.sandbox.port import Limits, Mount, SandboxPaths, SandboxProvider, SandboxSpec
from postroom.sandbox.selftest import Canaries
from postroom.sandbox.template_check import AGENT_FOLDER, search_path
from postroom.settings import Settings
from postroom.store.agents import Agent
from postroom.store.workers import AddedRule, WorkerRecord
from postroom.workers.reach import BY, Reach
from postroom.workers.workspaces.service import Placed
from postroom.workers.workspaces.tracking import PERSON, STANDING

SECRET_FILE = "sidecar.json"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A person's request for a worker; empty fields leave the choice to the template.

    Attributes:
        isolation: the least level of a wall that the person accepts, "" for what the post room demands.
        path: where the person has the template, "" if that is not known.
        workspace: the folder of this machine to work on, "" for an empty one.
        mode: how: `worktree`, `copy` or `direct`; "" for `worktree` in a git repository, else `copy`.
        by: who asks: `operator` for the operator's key, else a uid (`workers.reach`).
        branches: patterns of further branches of the workspace's repository that it sees.
        rules: what they allow its agent to do without asking them.
    """

    template: str
    files: Mapping[str, str]
    values: Mapping[str, str]
    nick: str = ""
    project: str = ""
    sandbox: str = ""
    isolation: str = ""
    path: str = ""
    workspace: str = ""
    mode: str = ""
    by: str = ""
    branches: Sequence[str] = ()
    rules: Sequence[AddedRule] = ()

    @property
    def origin(self) -> dict[str, str]:
        """The parts of the request that a restart with a new template needs."""
        said = {"path": self.path, "name": self.nick, "project": self.project}
        said |= {"sandbox": self.sandbox, "isolation": self.isolation, BY: self.by}
        if self.by != OPERATOR_KEY:
            # `restart` of another person would read their file at this path, and send it with their rights.
            said["path"] = ""
        if self.workspace:
            said |= {"workspace": self.workspace, "mode": self.mode}
        return said | ({"branches": "\n".join(self.branches)} if self.branches else {})


@dataclass(frozen=True, slots=True)
class WorkerFolders:
    """The host folders of one worker.

    Attributes:
        post_room: the state folder of the post room, with the keys of all organisations.
    """

    root: Path
    post_room: Path

    @classmethod
    def of(cls, settings: Settings, uid: str) -> WorkerFolders:
        """The folders of worker `uid`."""
        return cls(settings.workers / uid, settings.state)

    @property
    def workspace(self) -> Path:
        """The folder that the agent may write; it survives restarts."""
        return self.root / "workspace"

    @property
    def state(self) -> Path:
        """The folder of the sidecar's journal."""
        return self.root / "sidecar"

    @property
    def agent(self) -> Path:
        """The folder of the template's files."""
        return self.root / "agent"

    @property
    def log(self) -> Path:
        """The file for what sidecar and agent print."""
        return self.root / "log"

    def make(self, files: Mapping[str, bytes]) -> None:
        """Make the folders and write the template's files."""
        try:
            for folder in (self.workspace, self.state, self.agent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for former in self.agent.iterdir():
                if former.name not in files:
                    former.unlink()
            for name, content in files.items():
                (self.agent / name).write_bytes(content)
        except OSError as error:
            raise unwritable(error) from error


def unwritable(error: OSError) -> StateUnwritable:
    """The error for a worker's file that cannot be written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StateUnwritable(
            f"the disk is full: cannot write {error.filename or 'to it'}",
            remedy="free space, then do it again",
        )
    return StateUnwritable(f"cannot write {error.filename}: {error.strerror}")


def decode_files(template: Template, files: Mapping[str, str]) -> dict[str, bytes]:
    """Decode the files that `template` names, from base64.

    Raises:
        InvalidTemplate: a file is missing, not base64, or not named by the template, or all are too large.
    """
    for name in template.files:
        if name not in files:
            raise InvalidTemplate(f"the file {name!r} of workstation.files is missing")
    extra = sorted(set(files) - set(template.files))
    if extra:
        raise InvalidTemplate(f"workstation.files does not name {extra[0]!r}")
    decoded = {}
    for name, content in files.items():
        try:
            decoded[name] = base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise InvalidTemplate(f"the file {name!r} is not base64") from error
    if sum(map(len, decoded.values())) > MAX_FILES_BYTES:
        raise InvalidTemplate(
            f"the files are over {MAX_FILES_BYTES} bytes", remedy="mount a folder"
        )
    return decoded


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The names and secrets of a worker; made anew at each start, but for the message secret.

    Attributes:
        level: of the wall, as proven.
        rules: patterns that people have added to the policy of its template.
        autonomy: what people have set, by task (`protocol.autonomy`).
    """

    uid: str
    nick: str
    org: str
    projects: tuple[str, ...]
    credential: Credential
    token: str
    message_secret: bytes
    owner: str
    level: str
    card: Card
    run: str
    rules: tuple[str, ...] = ()
    autonomy: Mapping[str, str] = field(default_factory=dict, hash=False)


def card_of(agent: Agent, record: WorkerRecord, template: Template) -> Card:
    """The card of a worker as its template describes it; its version changes with the template."""
    named = json.dumps([record.template, record.overrides], sort_keys=True).encode()
    version = f"1.0.0+{hashlib.sha256(named).hexdigest()[:12]}"
    return build_card(agent.uid, agent.nick, template, version=version)


def compose(
    provider: SandboxProvider,
    template: Template,
    identity: WorkerIdentity,
    folders: WorkerFolders,
    gateway_socket: Path,
    canaries: Canaries,
    reach: Reach,
    placed: Placed | None = None,
) -> SandboxSpec:
    """The sandbox of a worker, with the sidecar as its program; `placed` is what it works on, if not an empty folder.

    Raises:
        Forbidden: by now a read-only place leads beyond `reach`.
        InvalidTemplate: a read-only place of the template does not exist, or is never shown (`sandbox.never`).
    """
    mounts = [Mount(folders.agent, AGENT_FOLDER)]
    for folder in dict.fromkeys(template.read_only):
        if not Path(folder).is_dir() and not Path(folder).is_file():
            raise InvalidTemplate(
                f"compute.read_only names {folder}, which is no folder and no file",
                remedy="name one that exists, in the template or, for a parameter of it, by --set NAME=PATH",
            )
        real = real_name(Path(folder))
        if reason := never_shown(real, (folders.post_room, gateway_socket.parent)):
            raise InvalidTemplate(
                f"compute.read_only names {folder}, which no sandbox is shown: {reason}",
                remedy="name a folder of plain files, or copy what is needed to one",
            )
        if not _is_shown(Path(folder), provider.shown):
            reach.refuse_place(real)
            mounts.append(Mount(real, folder, judged=True))
    mounts += placed.mounts if placed else ()
    draft = SandboxSpec(
        argv=(),
        env={},
        workdir="/",
        workspace=placed.workspace if placed else folders.workspace,
        judged=placed.judged if placed else False,
        covered=placed.covered if placed else (),
        state=folders.state,
        gateway_socket=gateway_socket,
        stderr_log=folders.log,
        read_only=tuple(mounts),
        limits=limits_of(template),
    )
    paths = provider.paths(draft)
    secret = f"{paths.secrets}/{SECRET_FILE}"
    config = sidecar_config(
        template,
        identity,
        paths,
        replace(canaries, gateway=paths.gateway_socket or paths.gateway_address),
        holes=provider.holes,
    )
    return replace(
        draft,
        # Without -P Python would import modules that the agent has left in the workspace.
        argv=(paths.python, "-P", "-m", "postroom.sidecar"),
        env=_environment(paths) | {"POSTROOM_SIDECAR_CONFIG": secret},
        workdir=paths.workspace,
        secrets={secret: json.dumps(config).encode()},
        ports=paths.ports,
    )


def limits_of(template: Template) -> Limits:
    """The limits of `template`."""
    return Limits(
        memory=template.memory_mb * MIB or None,
        processes=template.processes or None,
        cpu_percent=template.cpu_percent or None,
        disk=template.disk_mb * MIB or None,
        wall_seconds=template.wall_seconds or None,
    )


def _is_shown(folder: Path, shown: Collection[str]) -> bool:
    """Whether the sandbox shows `folder` anyway; a link that leads out of what it shows is refused."""
    if not any(folder.is_relative_to(place) for place in shown):
        return False
    real = folder.resolve()
    if any(real.is_relative_to(Path(place).resolve()) for place in shown):
        return True
    raise InvalidTemplate(
        f"compute.read_only names {folder}, a link to {real}", remedy=f"name {real} instead"
    )


def _environment(paths: SandboxPaths) -> dict[str, str]:
    return {
        "PATH": search_path(paths.python),
        "HOME": paths.home,
        "TMPDIR": paths.tmp,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # A wall of file permissions lets git see that there is a /etc/gitconfig, and git gives up on it.
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def sidecar_config(
    template: Template,
    identity: WorkerIdentity,
    paths: SandboxPaths,
    canaries: Canaries,
    *,
    holes: Collection[str] = (),
) -> dict[str, Any]:
    """The configuration that the sidecar reads at its start (docs/architecture.md, Sidecar)."""
    inside = paths.mounts[AGENT_FOLDER]
    command = [_inside(word, inside) for word in template.command]
    return {
        "uid": identity.uid,
        "nick": identity.nick,
        "org": identity.org,
        "project": identity.projects[0] if identity.projects else "",
        "projects": list(identity.projects),
        "jwt": identity.credential.jwt,
        "seed": identity.credential.seed,
        "jwt_expires_at": identity.credential.expires_at,
        "token": identity.token,
        "message_secret": identity.message_secret.hex(),
        "gateway_socket": paths.gateway_socket,
        "gateway_address": paths.gateway_address,
        "gateway_ca": paths.gateway_ca,
        "a2a_port": paths.a2a_port,
        **_execd(paths),
        "state": paths.state,
        "workspace": paths.workspace,
        "standing": f"{paths.mounts[PERSON]}/{STANDING}" if PERSON in paths.mounts else "",
        "owner": identity.owner,
        "canaries": json.loads(canaries.to_json()),
        "sandbox_level": identity.level,
        "sandbox_holes": sorted(holes),
        "ports": list(paths.ports),
        "run": identity.run,
        "interactive": template.interactive,
        "egress": bool(template.egress),
        "card": identity.card,
        "rerun": template.rerun,
        "attempts": template.attempts,
        "cancel_grace": template.cancel_grace,
        "agent": {
            "command": command,
            "env": dict(template.env),
            "cwd": paths.workspace,
            "adapter": template.adapter,
            "confirm": template.confirm,
            "patience": template.patience,
            "window": template.window,
            "feed": template.feed,
            "restart_limit": template.restart_limit,
            "turns": _turns(template)
            | {"rules": list(identity.rules), "autonomy": dict(identity.autonomy)}
            if template.adapter not in LINE_ADAPTERS
            else {},
        },
        "control_url": "http://postroom",
        "log_level": "info",
    }


def _turns(template: Template) -> dict[str, Any]:
    """What the sidecar is told of the turns of a coding agent (`sidecar.turns.config`)."""
    return {
        "servers": [asdict(server) for server in template.servers],
        "instructions": template.instructions,
        "auto_approve": list(template.auto_approve),
        "auto_deny": list(template.auto_deny),
        "autonomous": template.autonomous,
        "approval_timeout": template.approval_timeout,
        "approval_default": template.approval_default,
        "stall_after": template.stall_after,
        "turn_limit": template.turn_limit,
        "budget_tokens": template.budget_tokens,
        "budget_usd": float(template.budget_usd or 0),
    }


def _execd(paths: SandboxPaths) -> dict[str, Any]:
    if not paths.execd_port:
        return {}
    return {"execd": {"port": paths.execd_port, "token_file": paths.execd_token}}


def _inside(word: str, agent_folder: str) -> str:
    """A word of the command, with the path that the template's folder has in the sandbox."""
    if word == AGENT_FOLDER or word.startswith(AGENT_FOLDER + "/"):
        return agent_folder + word[len(AGENT_FOLDER) :]
    return word
