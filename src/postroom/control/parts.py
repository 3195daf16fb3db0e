"""All parts of an open organisation by name: `control.org` opens them, routes and requests of agents use them."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.audit.view import AuditView
from postroom.blobs.service import BlobService
from postroom.control.base import Base
from postroom.control.principals import Gate
from postroom.control.rotation import Rotation
from postroom.control.terminals import Terminals
from postroom.directory.claims import Claims
from postroom.directory.iam import LocalIAM
from postroom.directory.joining import Joining
from postroom.directory.letting_in import Grants
from postroom.directory.outside import OutsideAgents
from postroom.directory.presence import PresenceBoard
from postroom.directory.registry import CardRegistry
from postroom.directory.search import AgentSearch
from postroom.directory.sessions import Sessions
from postroom.push.configs import PushService
from postroom.push.webhooks import WebhookService
from postroom.remote.agents import RemoteAgents
from postroom.remote.work import RemoteWork
from postroom.tasks.assignment import TaskAssigner, TaskRetries
from postroom.tasks.reports import TaskReports
from postroom.tasks.service import OrgTaskService
from postroom.workers.lifecycle import Workers
from postroom.workers.parts import Issuer
from postroom.workers.status import WorkerStates, WorkerViews


@dataclass(frozen=True, slots=True)
class Parts(Base):
    """The parts of an organisation, after those of `Base`."""

    issuer: Issuer
    workers: Workers
    presence: PresenceBoard
    states: WorkerStates
    views: WorkerViews
    registry: CardRegistry
    search: AgentSearch
    outside: OutsideAgents
    sessions: Sessions
    claims: Claims
    joining: Joining
    remotes: RemoteAgents
    remote_work: RemoteWork
    tasks: OrgTaskService
    reports: TaskReports
    assigner: TaskAssigner
    retries: TaskRetries
    rotation: Rotation
    blobs: BlobService
    audit: AuditView
    terminals: Terminals
    iam: LocalIAM
    grants: Grants
    gate: Gate
    pushes: PushService
    webhooks: WebhookService
