"""Grants and requests as the API shows them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from postroom.protocol import shapes
from postroom.protocol.ids import UID
from postroom.store.agents import Party
from postroom.store.database import Store
from postroom.store.grants import GrantRequestRow, GrantRow
from postroom_a2a.times import format_time


def grants(
    store: Store, rows: Collection[GrantRow], now: float, own: Collection[str] = ()
) -> list[shapes.Grant]:
    """Shapes of the API; `own` are the ids of those whose grantees ask, who may know of themselves."""
    rows = [replace(row, called="") if row.id in own else row for row in rows]
    uids = {uid for row in rows for uid in (row.granter, row.grantee)}
    parties = store.agents.parties(uids)
    gone = store.grants.gone(uids)
    return [_shown(row, parties, now, gone) for row in rows]


def _shown(
    row: GrantRow, parties: dict[str, Party], now: float, gone: Collection[str]
) -> shapes.Grant:
    named_by_uid = UID.fullmatch(row.called) is not None
    grantee = parties[row.grantee]
    if row.called:
        grantee = Party(
            row.called if named_by_uid else "", "" if named_by_uid else row.called, "unknown"
        )
    state, ended = "valid", None
    if row.revoked_at is not None:
        state, ended = "revoked", row.revoked_at
    elif row.expires_at is not None and row.expires_at <= now:
        state, ended = "expired", row.expires_at
    elif row.granter in gone or (row.grantee in gone and not row.called):
        state = "revoked"
    return {
        "id": row.id,
        "granter": parties[row.granter].as_json(),
        "grantee": grantee.as_json(),
        "scopes": row.scopes.split(),
        "state": state,
        "made_at": format_time(row.made_at),
        "expires_at": None if row.expires_at is None else format_time(row.expires_at),
        "ended_at": None if ended is None else format_time(ended),
    }


def ended_at(row: GrantRow, now: float) -> float:
    """When it ended; infinite while it counts."""
    if row.revoked_at is not None:
        return row.revoked_at
    over = row.expires_at is not None and row.expires_at <= now
    return row.expires_at or 0.0 if over else math.inf


def requests(store: Store, rows: Collection[GrantRequestRow]) -> list[shapes.GrantRequest]:
    """Shapes of the API."""
    named = {uid for row in rows for uid in (row.granter, row.grantee, row.answered_by) if uid}
    parties = store.agents.parties(named)
    return [
        {
            "id": row.id,
            "granter": parties[row.granter].as_json(),
            "grantee": parties[row.grantee].as_json(),
            "scopes": row.scopes.split(),
            "reason": row.reason,
            "state": row.state,
            "asked_at": format_time(row.asked_at),
            "answered_by": parties[row.answered_by].as_json() if row.answered_by else None,
            "answered_at": None if row.answered_at is None else format_time(row.answered_at),
        }
        for row in rows
    ]
