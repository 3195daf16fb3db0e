"""What routes work with: the open parts of the control plane, in one frozen record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroom.blobs.office import BlobOffice
from postroom.control.audit.view import AuditView
from postroom.control.dispatch import Dispatch
from postroom.control.mailroom import Mailroom
from postroom.control.orgs import Orgs
from postroom.control.principals import Gate
from postroom.control.roster import Roster
from postroom.control.rotation import Rotation
from postroom.control.statefile import Announcement
from postroom.control.workers import Workers
from postroom.control.yellowpages import YellowPages
from postroom.gateway.credentials import Credentials
from postroom.tasks.office import TaskOffice


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
    pages: YellowPages
    rotation: Rotation
    keys: Callable[[], list[dict[str, str]]]
    blobs: BlobOffice
    credentials: Credentials
    audit: AuditView
    card_key: dict[str, str]
    announcement: Callable[[], Announcement]
    shut_down: Callable[[], None]
    orgs: Orgs | None = None
