"""What a stranger sees: an agent that came by open registration, which nobody of the organisation knows.

It sees itself and those whom a grant ties to it: who has let it in, and whom it has let in. Everybody else is for it as
if there were nobody. What each operation shows it is in the table (`control.ops.table.Operation.strangers`).
"""

from __future__ import annotations

from postroom.directory.grants import GrantScope, called, not_let_in
from postroom.protocol.principal import Principal
from postroom.store.database import Store


def tied(store: Store, me: Principal, now: float) -> dict[str, frozenset[str]]:
    """The uids that a stranger sees, each with the names of the scopes for which it is let in there."""
    mine = store.grants.reached(me.uid)
    sides = mine.sides if mine is not None else {me.uid}
    everything = frozenset(scope.value for scope in GrantScope)
    found = {me.uid: everything}
    for uid, granter, scopes, expires, revoked in store.grants.ties(sides):
        if revoked is None and (expires is None or expires > now):
            let_in = frozenset(scopes.split()) if granter not in sides else frozenset()
            found[uid] = found.get(uid, frozenset()) | let_in
    return found


def check_tied(
    store: Store, me: Principal, ref: str, now: float, scope: GrantScope | None = None
) -> None:
    """Raise NotLetIn unless a stranger sees the agent `ref`, and with `scope` is let in for that."""
    found = called(store, me.org, ref)
    seen = tied(store, me, now)
    scopes = seen.get(found.agent.uid) if found is not None else None
    if scopes is None or (scope is not None and scope.value not in scopes):
        raise not_let_in(ref)
