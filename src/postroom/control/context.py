"""What routes work with: the open parts of the control plane, in one frozen record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroom.audit.view import AuditView
from postroom.blobs.office import BlobOffice
from postroom.control.dispatch import Dispatch
from postroom.control.mailroom import Mailroom
from postroom.control.orgs import Orgs
from postroom.control.principals import Gate
from postroom.control.rotation import Rotation
from postroom.control.statefile import Announcement
from postroom.directory.search import AgentSearch
from postroom.gateway.credentials import Credentials
from postroom.tasks.office import TaskOffice
from postroom.workers.lifecycle import Workers
from postroom.workers.status import Roster


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a route may use.

    Attributes:
        keys: public keys and what they are for.
        card_key: public half of the key that signs cards, as a JWK.
        announcement: what `server.json` says now.
        shut_down: ends the post room.
        orgs: all organisations, for the API of the default one; None for the others'.
    """

    room: Mailroom
    tasks: TaskOffice
    dispatch: Dispatch
    gate: Gate
    workers: Workers
    roster: Roster
    pages: AgentSearch
    rotation: Rotation
    keys: Callable[[], list[dict[str, str]]]
    blobs: BlobOffice
    credentials: Credentials
    audit: AuditView
    card_key: dict[str, str]
    announcement: Callable[[], Announcement]
    shut_down: Callable[[], None]
    orgs: Orgs | None = None
