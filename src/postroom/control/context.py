"""What routes work with: the open parts of the control plane, in one frozen record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroom.bus.port import MessageBusProvider
from postroom.control.principals import Gate
from postroom.control.roster import Roster
from postroom.control.statefile import Announcement
from postroom.control.workers import Workers
from postroom.mail.changes import Changes
from postroom.mail.deadmail import DeadMail
from postroom.mail.directory import Directory
from postroom.mail.office import PostOffice
from postroom.store.agents import Agent


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a route may use.

    Attributes:
        bus: connection to core.
        owner: the operator.
        announcement: what `server.json` says now.
        shut_down: ends the post room.
    """

    bus: MessageBusProvider
    gate: Gate
    owner: Agent
    directory: Directory
    office: PostOffice
    deadletters: DeadMail
    changes: Changes
    workers: Workers
    roster: Roster
    announcement: Callable[[], Announcement]
    shut_down: Callable[[], None]
