"""Who may reach whom: inside an organisation everybody, unless it or the agent says otherwise; else by grants.

A grant is the recipient's: it says who may reach it, for which scopes, until when. A grant of a person covers the
agents that they own, on both sides. Agents of one owner, and the owner, reach one another without one.

Who may not reach an agent is not told whether there is one (`NotLetIn`), and the same is asked of the database in both
cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
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
    nick, named = split(ref)
    by_uid = UID.fullmatch(ref) is not None
    found = store.grants.reached(ref if by_uid else "", org=named or org, nick=nick)
    me = store.grants.reached(sender)
    grants = store.grants.between(_sides(found), _sides(me))
    member = me is not None and me.joined != OPEN
    if found is None and member and not named and not by_uid:
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
    ours = {found.owner, found.agent.uid} & {me.owner, me.agent.uid} - {""}
    inside = found.agent.org == org and not found.grants_only and me.joined != OPEN
    return bool(ours) or inside


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


class Decisions:
    """What is being taken because a grant counts. Whoever takes a grant back waits for it: nothing is taken behind."""

    def __init__(self) -> None:
        self._open: set[asyncio.Future[None]] = set()

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
