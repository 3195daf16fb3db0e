"""The parts that starting, watching and ending the workers of an organisation share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from postroom.bus.port import BusAdmin
from postroom.directory.agents import Directory
from postroom.gateway.credentials import BoundCredential
from postroom.gateway.port import GatewayProvider
from postroom.mail.alerts import AlertService
from postroom.sandbox.opensandbox.remote import Remote
from postroom.sandbox.selftest import Canaries
from postroom.settings import Settings
from postroom.store.database import Database
from postroom.workers.issuer import Issuer


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The shared parts.

    Attributes:
        credentials: returns the secrets that the gateway may add to workers' requests now.
        canaries: what each sandbox is tried against.
        remote: where sandboxes of other machines run, None for nowhere.
        tasks: runs the watchers of sandboxes.
        changed: called when a worker has started or ended.
        space: raises `StateUnwritable` while the disk is full.
    """

    settings: Settings
    database: Database
    directory: Directory
    admin: BusAdmin
    issuer: Issuer
    gateway: GatewayProvider
    alerts: AlertService
    owner: str
    credentials: Callable[[], Sequence[BoundCredential]]
    canaries: Canaries
    remote: Remote | None
    tasks: asyncio.TaskGroup
    changed: Callable[[], None]
    space: Callable[[], None]
