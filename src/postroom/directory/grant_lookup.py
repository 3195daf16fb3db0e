"""Which grants and requests are meant, and whether a principal may speak for who lets in: read from the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from postroom.directory.agents import resolve
from postroom.directory.grants import OPEN, called, split
from postroom.errors import Conflict, Forbidden, NotFound
from postroom.protocol.ids import ID_PREFIX, UID, check_address, only_one
from postroom.protocol.principal import Principal, Scope
from postroom.store.database import Store
from postroom.store.grants import GrantRequestRow, GrantRow, Reached
from postroom_a2a.text import one_line


def granter(store: Store, org: str, me: Principal, ref: str, *, look: bool = False) -> str:
    """The uid of who lets in, which `me` may speak for; with `look` nobody is let in by what follows."""
    uid = resolve(store, org, ref).uid if ref else me.uid
    if not me.allows(Scope.ADMIN) and uid not in sides_of(store, me):
        raise Forbidden("only an agent itself, and who owns it, may do this")
    if not look:
        check_giver(me)
    return uid


def grantee(store: Store, org: str, me: Principal, whose: str, ref: str) -> tuple[str, str]:
    """The uid of who is to be let in; and, where `me` must not learn whether it exists, what it was called."""
    nick, named = split(ref)
    member = is_member(store, me)
    if member and not UID.fullmatch(ref) and named in ("", org):
        return resolve(store, org, nick).uid, ""
    known = called(store, org, ref)
    if known is not None and member and known.agent.org == org:
        return known.agent.uid, ""
    if UID.fullmatch(ref):
        return ref, ref
    address = check_address(f"{nick}.{named or org}")
    nobody = hashlib.sha256(f"{whose} {address}".encode()).hexdigest()[:32]
    return known.agent.uid if known is not None else nobody, address


def asked(store: Store, org: str, me: Principal, ref: str) -> Reached | None:
    """The agent that is asked to let `me` in; raises UnknownRecipient for a nick of one's own organisation."""
    nick, named = split(ref)
    if not named and not UID.fullmatch(ref) and is_member(store, me):
        resolve(store, org, nick)
    return called(store, org, ref)


def is_member(store: Store, me: Principal) -> bool:
    """Whether `me` belongs to the organisation: a stranger does not."""
    own = store.grants.reached(me.uid)
    return own is not None and own.joined != OPEN


def seen(
    store: Store, org: str, me: Principal, agent: str
) -> tuple[Iterable[GrantRow], Iterable[GrantRow]]:
    """The grants of, and those to, what `me` may see."""
    if agent:
        uid = granter(store, org, me, agent, look=True)
        return store.grants.of([uid]), store.grants.to([uid])
    sides = sides_of(store, me)
    own = store.grants.reached(me.uid)
    to = {*sides, *own.sides} if own is not None else sides
    return store.grants.of(None if me.allows(Scope.ADMIN) else sides), store.grants.to(to)


def given(store: Store, me: Principal, ref: str) -> GrantRow:
    """The grant that `me` may take back, by its id, the beginning of that, or whom it lets in.

    Raises:
        NotFound, Conflict: there is none, or there are several.
    """
    rows = store.grants.of(None if me.allows(Scope.ADMIN) else sides_of(store, me))
    if not UID.fullmatch(ref) and not ID_PREFIX.fullmatch(ref):
        return _to(store, rows, ref)
    ids = {row.id: row for row in rows if row.id.startswith(ref)}
    chosen = only_one(ref, list(ids), "grants")
    return ids[chosen] if chosen else _to(store, rows, ref)


def _to(store: Store, rows: list[GrantRow], ref: str) -> GrantRow:
    """The one that lets in who is shown as `ref`, those first that have not ended."""
    parties = store.agents.parties([row.grantee for row in rows])
    named = ref.removeprefix("@")
    found = [
        row
        for row in rows
        if named in (row.called or row.grantee, row.called or parties[row.grantee].nick)
    ]
    going_on = [row for row in found if row.revoked_at is None] or found
    if len(going_on) > 1:
        ids = ", ".join(row.id[:12] for row in going_on[:8])
        raise Conflict(
            f"several grants let in {one_line(ref, 80)}: {ids}", remedy="name one by its id"
        )
    if not going_on:
        raise NotFound("there is no such grant", remedy="postroom grants list")
    return going_on[0]


def request(store: Store, me: Principal, ref: str) -> GrantRequestRow:
    """The request that `me` may answer, by its id or the beginning of that. Raises NotFound, Conflict."""
    rows = store.grants.asked(None if me.allows(Scope.ADMIN) else sides_of(store, me))
    found = {row.id: row for row in rows if row.id.startswith(ref)}
    known = UID.fullmatch(ref) or ID_PREFIX.fullmatch(ref)
    chosen = only_one(ref, list(found), "requests") if known else None
    if chosen is None:
        raise NotFound("there is no such request", remedy="postroom grants requests")
    return found[chosen]


def check_giver(me: Principal) -> None:
    """Raise Forbidden unless `me` may let others in by itself."""
    if not me.is_free:
        me.require(Scope.GRANT)


def sides_of(store: Store, me: Principal) -> list[str]:
    """`me`, and the agents that belong to `me`."""
    return with_theirs(store, me.uid)


def with_theirs(store: Store, uid: str) -> list[str]:
    """An agent, and those that belong to it."""
    return [uid, *store.grants.owned(uid)]


def let_in_by(store: Store, granters: Collection[str]) -> list[str]:
    """Whom these have let in at any time, and what belongs to those."""
    grantees = {row.grantee for row in store.grants.of(granters)}
    return [uid for each in grantees for uid in with_theirs(store, each)]
