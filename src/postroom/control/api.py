"""The HTTP API `/v1` of one organisation (docs/api.md), from the table of operations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from postroom.control.measuring import Measuring
from postroom.control.ops import (
    agents,
    alerts,
    aliases,
    announcements,
    approvals,
    audit,
    backup,
    blobs,
    claims,
    credentials,
    deadletters,
    events,
    feeds,
    grants,
    inbox,
    integrity,
    invites,
    keys,
    mcp,
    messages,
    metrics,
    openings,
    orgs,
    people,
    pushes,
    reports,
    retention,
    room,
    sessions,
    tasks,
    terminals,
    trust,
    webhooks,
    workers,
    workspaces,
)
from postroom.control.ops.table import Operation
from postroom.control.orgs import Orgs
from postroom.control.parts import Parts
from postroom.control.router import Router
from postroom.control.statefile import Announcement

_NOUNS = (
    *(
        blobs,
        workers,
        workspaces,
        agents,
        announcements,
        approvals,
        keys,
        claims,
        people,
        tasks,
        pushes,
        webhooks,
    ),
    *(sessions, grants, invites),
    *(reports, messages, inbox, feeds, events, terminals, deadletters, alerts, credentials, audit),
    *(trust, retention, integrity, room, orgs, openings, backup, metrics, mcp, aliases),
)

OPERATIONS: tuple[Operation, ...] = tuple(chain.from_iterable(each.operations for each in _NOUNS))
"""Every operation."""


def build_api(
    parts: Parts, announcement: Callable[[], Announcement], managed: Orgs | None = None
) -> Router:
    """The API of one organisation.

    Args:
        announcement: returns the present content of `server.json`.
        managed: all organisations, for the API of the default one; None for the others'.
    """
    given: dict[str, Any] = {"parts": parts, "announcement": announcement}
    if managed is not None:
        given["orgs"] = managed
        given["measuring"] = Measuring(parts.installation, managed.opened)
    return Router(parts.gate, given, OPERATIONS)
