"""The composition root of one worker's sidecar."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from postroom.bus.port import DeliveryHandler
from postroom.directory.cards import not_offered
from postroom.protocol.alerts import RaiseAlert
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.parts import input_modes, takes
from postroom.protocol.template import RERUNS
from postroom.sidecar.a2a.changes import LivePeers, NewCaller, TaskChanges
from postroom.sidecar.a2a.peers import AskedTasks, Peers
from postroom.sidecar.a2a.routes import A2ARoutes
from postroom.sidecar.a2a.serving import ServedTasks, ServingOperations
from postroom.sidecar.actions import Actions
from postroom.sidecar.agent import AgentProgram, ResidentProgram
from postroom.sidecar.api import LocalApi, WorkActions
from postroom.sidecar.bus import BusClient, alert_raiser
from postroom.sidecar.config import ENVIRONMENT, SidecarConfig, filled
from postroom.sidecar.control_client import BlobRelay
from postroom.sidecar.ctl import DirectoryClient, TaskClient
from postroom.sidecar.delegations import Delegations
from postroom.sidecar.execd import ExecdWorkstation
from postroom.sidecar.execd_terminal import ExecdShells
from postroom.sidecar.inbox import Inbox
from postroom.sidecar.journal import Journal
from postroom.sidecar.notices import Notices, Priority
from postroom.sidecar.outgoing import Outgoing, Receipts
from postroom.sidecar.per_request import RequestProgram
from postroom.sidecar.program import Ownership, ProgramExecutor
from postroom.sidecar.status import Announcer, StatusReporter
from postroom.sidecar.terminal import OpenShell, own_shell
from postroom.sidecar.turns.control import ControlChannel
from postroom.sidecar.turns.home import StateFile
from postroom.sidecar.turns.program import STEERING, Surroundings, turn_program
from postroom.sidecar.workstation import LocalWorkstation, Workstation
from postroom.tasks.attempts import Attempts
from postroom.tasks.engine import Ask, TaskEngine
from postroom.tasks.log import TaskLog
from postroom_a2a.json_operations import JsonOperations
from postroom_a2a.tasks import Message

JOURNAL = "confirmed"
"""Name of the journal in the state folder."""

COMMAND = "postroom-agent"
"""The local API as a command; installed beside the sidecar's own program."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The parts of one worker's sidecar."""

    agent: AgentProgram
    inbox: Inbox
    actions: Actions
    notices: Notices
    status: StatusReporter
    raise_alert: RaiseAlert
    journal: Journal
    api: LocalApi
    a2a: A2ARoutes
    serving: ServingOperations
    live: LivePeers
    announcer: Announcer
    engine: TaskEngine
    task_client: TaskClient
    priority: Priority
    environment: Mapping[str, str]
    channel: ControlChannel

    def handlers(self, feed: bool) -> dict[str, DeliveryHandler]:
        """The handler of each stream's deliveries."""
        handlers: dict[str, DeliveryHandler] = {
            "PRIORITY": self.priority.take,
            "INBOX": self.inbox.take,
            "RECEIPTS": self.notices.take_receipt,
        }
        if feed:
            handlers["FEED"] = self.notices.take_post
        return handlers


def compose(
    config: SidecarConfig,
    bus: BusClient,
    caller: NewCaller,
    port: int,
    blobs: BlobRelay | None = None,
    outside: str = "",
    record: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Sidecar:
    """Make the sidecar of `config`; the local API will listen on `port`.

    Args:
        blobs: None where no control plane can be asked.
        outside: URL of the egress relay, "" for none.
        record: takes an event of the agent for the control plane.
    """
    own, agent_config = config.uid, config.agent
    journal = Journal(config.state / JOURNAL)
    raise_alert = alert_raiser(bus, own)
    directory = DirectoryClient(bus, own)
    inbox: Inbox
    engine: TaskEngine
    env = agent_environment(config, os.environ, port, outside)
    work = WorkActions(workstation(config, env))
    status = StatusReporter(
        bus,
        own,
        lambda: len(inbox.held) + len(engine.executions),
        lambda: inbox.unconfirmed(),  # noqa: PLW0108 (the inbox is made last)
    )
    around = Surroundings(env, outside, whoami(config), directory.find, record, status, raise_alert)
    agent, channel = _agent(config, around, _hello(config, port))
    task_client = TaskClient(bus, own, config.run)
    changes = TaskChanges()
    live = LivePeers(caller, changes, own)
    program = ProgramExecutor(agent, directory, config.cancel_grace)
    engine = TaskEngine(
        TaskLog(bus, task_client, worker=own, run=config.run, stored=changes.stored),
        task_client,
        program,
        worker=own,
        refuse=partial(refusal, config.card),
        attempts=Attempts(config.attempts, config.rerun == RERUNS[0], lambda: agent.goes_on),
        trusted=(config.owner, CONTROL_PLANE),
        changed=status.touch,
    )
    inbox = Inbox(
        agent,
        directory,
        Receipts(bus, own, config.message_secret),
        journal,
        own=own,
        nick=config.nick,
        accept=engine.accept,
        refuse=partial(refused_parts, config.card),
        # A turn's result confirms its message, and nothing before.
        confirm_on_read=agent_config.confirm == "read" and not agent_config.in_turns,
        # A turn may take long; what it does is seen in its events, and its silence by `stall_after`.
        patience=(not agent_config.in_turns and agent_config.patience) or inf,
        window=agent_config.held,
        changed=status.touch,
    )
    outgoing = Outgoing(
        bus, raise_alert, own=own, secret=config.message_secret, projects=_projects(config)
    )
    delegations = Delegations(agent, directory, outgoing, task_client, changes, own)
    actions = Actions(
        inbox=inbox,
        outgoing=outgoing,
        directory=directory,
        status=status,
        engine=engine,
        ownership=Ownership(inbox, program),
        delegations=delegations,
        task_client=task_client,
    )
    asking = JsonOperations(AskedTasks(actions, task_client, live, own, own))
    a2a = A2ARoutes(
        asking, dict(config.card), port, Peers(actions, directory, task_client, live, own)
    )
    return Sidecar(
        agent=agent,
        inbox=inbox,
        actions=actions,
        notices=Notices(agent, directory, outgoing, own),
        status=status,
        raise_alert=raise_alert,
        journal=journal,
        api=LocalApi(actions, whoami(config), port, a2a, blobs, work),
        a2a=a2a,
        serving=ServingOperations(ServedTasks(task_client, changes, engine, own)),
        live=live,
        announcer=Announcer(bus, own, config.card),
        engine=engine,
        task_client=task_client,
        priority=Priority(engine, delegations, task_client),
        environment=env,
        channel=channel or ControlChannel(StateFile(config.state / STEERING)),
    )


def _agent(
    config: SidecarConfig, around: Surroundings, hello: Mapping[str, Any]
) -> tuple[AgentProgram, ControlChannel | None]:
    """The program, and what people tell it where it works in turns."""
    if config.agent.in_turns:
        return turn_program(config, around)
    common: dict[str, Any] = {
        "env": around.env,
        "cwd": config.agent.cwd or config.workspace,
        "status": around.status,
        "raise_alert": around.raise_alert,
    }
    if config.agent.adapter == "text":
        return RequestProgram(config.agent, **common), None
    return ResidentProgram(config.agent, hello=hello, **common), None


def refusal(card: Mapping[str, Any], ask: Ask) -> str:
    """The reason why a worker with that card refuses a request, "" if it takes it (A2A 1.0, section 4.4).

    A worker without a card, {}, takes any request.
    """
    if refused := not_offered(dict(card), ask.skill):
        return refused
    parts = ask.message.get("parts")
    if not isinstance(parts, list) or not parts:
        return "the request says nothing"
    return refused_parts(card, ask.message, ask.skill)


def refused_parts(card: Mapping[str, Any], message: Message, skill: str = "") -> str:
    """Which media types a worker with that card takes, if a part of the message has another one; else ""."""
    modes = input_modes(card, skill)
    parts = message.get("parts")
    if not isinstance(parts, list) or all(takes(modes, part) for part in parts):
        return ""
    return f"takes {', '.join(modes)} only"


def agent_environment(
    config: SidecarConfig, outer: Mapping[str, str], port: int, outside: str = ""
) -> dict[str, str]:
    """The agent's environment: the sidecar's own, which holds no secret, the addresses, and the template's.

    In a value of the template `${NAME}` stands for one of the other variables; an unknown name stays as it is.
    """
    env = {name: value for name, value in outer.items() if name != ENVIRONMENT}
    env |= {
        **_proxies(outside),
        "POSTROOM_API": f"http://127.0.0.1:{port}",
        "POSTROOM_NICK": config.nick,
        "POSTROOM_PROJECT": config.project,
    }
    said = {name: filled(text, env) for name, text in config.agent.env.items()}
    path = said.get("PATH", env.get("PATH", ""))
    return {**env, **said, "PATH": _with_command(path)}


def _with_command(path: str) -> str:
    """`path`, which a template may set, with the folder of `postroom-agent` in it."""
    folders = [folder for folder in path.split(os.pathsep) if folder]
    own = str(Path(sys.executable).parent)
    if own not in folders and shutil.which(COMMAND, path=own):
        folders.append(own)
    return os.pathsep.join(folders)


def workstation(config: SidecarConfig, env: Mapping[str, str]) -> Workstation:
    """Runs the agent's commands and works on its files: execd where the container has one, else the sidecar."""
    root = Path(config.workspace or config.agent.cwd or ".").absolute()
    if config.execd is not None:
        return ExecdWorkstation(config.execd, root, env)
    return LocalWorkstation(root, env)


def shells(config: SidecarConfig, env: Mapping[str, str]) -> OpenShell:
    """Opens the shells of people: on execd's pseudo terminals where the container has one, else on the sidecar's."""
    cwd = config.agent.cwd or config.workspace
    own = partial(own_shell, env, cwd)
    if config.execd is not None:
        return ExecdShells(config.execd, env, cwd, own).open
    return own


def _proxies(outside: str) -> dict[str, str]:
    """The variables that make programs use the egress relay as a proxy; some read only the small spelling."""
    if not outside:
        return {}
    proxies = {"HTTP_PROXY": outside, "HTTPS_PROXY": outside, "NO_PROXY": "localhost,127.0.0.1"}
    in_small = {name.lower(): value for name, value in proxies.items()}
    return proxies | in_small | {"POSTROOM_EGRESS": outside}


def whoami(config: SidecarConfig) -> dict[str, Any]:
    """The answer to `whoami`."""
    return {
        "uid": config.uid,
        "nick": config.nick,
        "org": config.org,
        "project": config.project,
        "projects": list(config.projects),
        "owner": {"uid": config.owner},
    }


def _hello(config: SidecarConfig, port: int) -> dict[str, Any]:
    return {
        "type": "hello",
        "uid": config.uid,
        "nick": config.nick,
        "project": config.project,
        "owner": {"uid": config.owner},
        "adapter": 1,
        "api": f"http://127.0.0.1:{port}",
    }


def _projects(config: SidecarConfig) -> tuple[str, ...]:
    others = (project for project in config.projects if project != config.project)
    return (config.project, *others) if config.project else tuple(others)


__all__ = [
    "Sidecar",
    "agent_environment",
    "compose",
    "refusal",
    "refused_parts",
    "shells",
    "whoami",
    "workstation",
]
