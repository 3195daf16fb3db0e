"""Who may reach whom: inside an organisation everybody, unless it or the agent says otherwise; else by grants.

A grant is the recipient's: it says who may reach it, for which scopes, until when. A grant of a person covers the
agents that they own, on both sides. Agents of one owner, and the owner, reach one another without one.

Who may not reach an agent is not told whether there is one (`NotLetIn`), and the same is asked of the database in both
cases.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from postroom.errors import NotLetIn, UnknownRecipient
from postroom.protocol.ids import UID
from postroom.store.database import Store
from postroom.store.grants import GrantRow, Reached
from postroom_a2a.text import one_line

NOBODY = "-"
"""Stands for the uid of an agent that does not exist, so that the same is asked for it."""


class GrantScope(StrEnum):
    """What a grant lets in for.

    `message`: messages, with their files, replies and receipts.
    `task`: tasks, with their files, follow-ups, events and push notifications.
    `card`: the Agent Card, and whether the agent is there.
    """

    MESSAGE = "message"
    TASK = "task"
    CARD = "card"


def split(ref: str) -> tuple[str, str]:
    """The nick and the organisation that an address names: `@nick.org` has both, `@nick` and `nick` have none."""
    nick, _, org = ref.removeprefix("@").partition(".")
    return nick, org


def called(store: Store, org: str, ref: str) -> Reached | None:
    """The agent with that address or uid, of any organisation; a nick without one is of `org`. None for nobody."""
    nick, named = split(ref)
    return store.grants.reached(ref if UID.fullmatch(ref) else "", org=named or org, nick=nick)


def owns(store: Store, owner: str, uid: str) -> bool:
    """Whether an agent belongs to the person `owner`."""
    found = store.grants.reached(uid)
    return found is not None and bool(found.owner) and found.owner == owner


def reach(
    store: Store,
    org: str,
    sender: str,
    ref: str,
    scope: GrantScope,
    now: float,
    *,
    asker: str = "",
) -> Reached:
    """The agent that `ref` names, if `sender` may reach it for `scope`.

    Args:
        org: of the sender; a nick without an organisation is of this one.
        sender: uid.
        ref: `@nick`, a bare nick, `@nick.org`, or a uid.
        asker: uid of the agent whose message `sender` answers, which needs no grant; "" for none.

    Raises:
        UnknownRecipient: nobody in the sender's organisation has that nick.
        NotLetIn: there is no such agent, or it has not let the sender in.
    """
    found = called(store, org, ref)
    me = store.grants.reached(sender)
    grants = store.grants.between(_sides(found), _sides(me))
    member = me is not None and me.joined != OPEN
    if found is None and member and not UID.fullmatch(ref) and not split(ref)[1]:
        raise UnknownRecipient(
            f"nobody is called {one_line(ref, 80)!r}", remedy="postroom agents lists all"
        )
    free = me is not None and found is not None and _is_open(found, me, org)
    if found is not None and (free or found.agent.uid == asker):
        return found
    if found is not None and lets_in(grants, scope, now):
        return found
    raise not_let_in(ref)


def among(
    store: Store, sender: str, uids: Iterable[str], scope: GrantScope, now: float
) -> set[str]:
    """Those of `uids`, agents of the sender's organisation or of another one, that `sender` may reach for `scope`."""
    me = store.grants.reached(sender)
    org = me.agent.org if me is not None else ""
    reached = set()
    for uid in uids:
        with suppress(NotLetIn):
            reached.add(reach(store, org, sender, uid, scope, now).agent.uid)
    return reached


OPEN = "open"
"""How an agent has joined that nobody has invited."""


def _is_open(found: Reached, me: Reached, org: str) -> bool:
    """Whether no grant is needed."""
    inside = found.agent.org == org and not found.grants_only and me.joined != OPEN
    return inside or not found.sides.isdisjoint(me.sides)


def lets_in(grants: list[GrantRow], scope: GrantScope, now: float) -> bool:
    """Whether one of them counts for `scope` now."""
    return any(grant.covers(scope.value, now) for grant in grants)


def not_let_in(ref: str) -> NotLetIn:
    """The one error for an agent that is not reached, whatever the reason."""
    return NotLetIn(
        f"{one_line(ref, 80)!r} cannot be reached: there is no such agent, or it has not let you in",
        remedy="ask to be let in: postroom grants ask @NICK.ORG",
    )


def _sides(one: Reached | None) -> list[str]:
    """Whose grants count for an agent: its own, and those of who owns it."""
    if one is None:
        return [NOBODY, NOBODY]
    return [one.agent.uid, one.owner or NOBODY]


@dataclass(frozen=True, slots=True)
class Closed:
    """Who in an organisation is reached by grants alone, for what is decided without asking the database.

    Attributes:
        let_in: by the uid of each such agent, until when (epoch seconds) it lets in whom (uids).
        owners: of all agents of the organisation that belong to somebody, by uid.
    """

    let_in: Mapping[str, Mapping[str, float]]
    owners: Mapping[str, str]

    def takes(self, to: str, sender: str, now: float) -> bool:
        """Whether `to` takes what `sender`, of the same organisation, sends unasked."""
        let_in = self.let_in.get(to)
        if let_in is None:
            return True
        sides = {sender, self.owners.get(sender, "")} - {""}
        ours = {to, self.owners.get(to, "")} & sides
        return bool(ours) or any(let_in.get(side, 0.0) > now for side in sides)


NOBODY_CLOSED = Closed({}, {})


def closed(store: Store, org: str) -> Closed:
    """As the database has it now."""
    known = store.grants.closed(everybody=store.grants.admission(org).grants_only)
    if not known:
        return NOBODY_CLOSED
    owners = store.grants.owners()
    sides = {uid: (uid, owners.get(uid, NOBODY)) for uid in known}
    until: dict[str, dict[str, float]] = {}
    for grant in store.grants.of({side for each in sides.values() for side in each}):
        words = grant.scopes.split()
        if grant.revoked_at is None and (GrantScope.MESSAGE in words or GrantScope.TASK in words):
            ends = math.inf if grant.expires_at is None else grant.expires_at
            until.setdefault(grant.granter, {})[grant.grantee] = ends
    let_in = {}
    for uid, (own, owner) in sides.items():
        mine, theirs = until.get(own, {}), until.get(owner, {})
        let_in[uid] = {to: max(mine.get(to, 0.0), theirs.get(to, 0.0)) for to in {*mine, *theirs}}
    return Closed(let_in, owners)


class Decisions:
    """What is being taken because a grant counts. Whoever takes a grant back waits for it: nothing is taken behind.

    Attributes:
        closed: who in each open organisation is reached by grants alone: workers send by themselves, and their doors
            cannot ask the database.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._open: set[asyncio.Future[None]] = set()
        self._clock = clock
        self.closed: dict[str, Closed] = {}

    def takes(self, org: str, to: str, sender: str) -> bool:
        """Whether an agent takes what a worker of `org` sends to it by itself, by what is in memory."""
        return self.closed.get(org, NOBODY_CLOSED).takes(to, sender, self._clock())

    @contextmanager
    def taking(self) -> Generator[None]:
        """From before the grant is read until what it lets in is stored, or refused."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open.add(one)
        try:
            yield
        finally:
            self._open.discard(one)
            one.set_result(None)

    async def settled(self) -> None:
        """Return when all that had begun before has ended."""
        if self._open:
            await asyncio.wait(self._open.copy())
