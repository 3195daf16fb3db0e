"""Lets agents in, takes that back, and asks to be let in: the grants of one organisation (docs/post-office.md).

Who names an agent of another organisation never learns here whether there is one: a grant to it is stored under the
words of its granter, and a request is answered alike. So neither is a way to find out who exists.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from postroom.directory import grant_lookup as lookup
from postroom.directory import grant_views
from postroom.directory.agents import resolve
from postroom.directory.grants import NOBODY, Closed, Decisions, GrantScope, closed
from postroom.errors import Conflict, InvalidInput, Refused
from postroom.observe.supervision import well
from postroom.protocol import shapes
from postroom.protocol.ids import UID
from postroom.protocol.limits import MAX_ASKED_OF, MAX_GRANTS, MAX_REASON
from postroom.protocol.principal import Principal, Scope
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.grants import Admission, GrantRequestRow, GrantRow, Reached
from postroom_a2a.text import one_line

ASK_AGAIN = 7 * 86400.0
"""Seconds after which who was denied can ask again."""

PAUSE = 1.0
"""Seconds between two looks at the agents that have come or gone."""

LONGEST = 3600.0
"""Seconds after which the clock is looked at again, however far the next end is: it may have been set."""

PENDING, ALLOWED, DENIED = "pending", "allowed", "denied"
"""States of a request."""

LATELY = 86400.0
"""Seconds for which the end of a grant is news."""

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is let in for, and until when (epoch seconds, None for ever)."""

    scopes: Collection[GrantScope] = ()
    expires_at: float | None = None

    @property
    def words(self) -> str:
        """The scopes as a row has them; without any it is messages."""
        named = self.scopes or (GrantScope.MESSAGE,)
        return " ".join(scope.value for scope in GrantScope if scope in named)


@dataclass(frozen=True, slots=True)
class Meant:
    """Whom somebody means to let in.

    Attributes:
        granter: uid; `granter_nick` is for people.
        grantee: the reference that means the same later: a uid, or of another organisation perhaps `@nick.org`.
        called: the grantee for people, without `@`.
    """

    granter: str
    granter_nick: str
    grantee: str
    called: str


class Grants:
    """The grants of an organisation, and who asks for one.

    Args:
        elsewhere: the database of another organisation that is open, by its name.
        cut: ends the streams that stand on grants of these granters (uids) to these grantees.
    """

    def __init__(
        self,
        database: Database,
        org: str,
        decisions: Decisions,
        elsewhere: Callable[[str], Database | None],
        cut: Callable[[Collection[str], Collection[str]], None] = lambda _granters, _grantees: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._org = org
        self._decisions = decisions
        self._elsewhere = elsewhere
        self._cut = cut
        self._clock = clock
        self._stale = asyncio.Event()
        self._ending: dict[str, GrantRow] = {}

    # ── what workers' doors know ────────────────────────────────────────────────────────────────────────

    async def refresh(self) -> None:
        """Bring what the doors of workers go by up to date."""

        def read(store: Store) -> tuple[Closed, list[GrantRow]]:
            return closed(store, self._org), store.grants.of()

        found, grants = await self._database.read(read)
        self._decisions.closed[self._org] = found
        before = self._next_end()
        self._ending = {row.id: row for row in grants if _is_ending(row, self._clock())}
        if self._next_end() < before:
            self._stale.set()  # who waits for the next end waits too long

    def wake(self) -> None:
        """Say that an agent came, went, or belongs to somebody else."""
        self._stale.set()

    async def run(self) -> None:
        """Follow the agents that come and go, and end what stands on grants whose time is over, until cancelled."""
        while True:
            with suppress(TimeoutError):
                left = self._next_end() - self._clock()
                await asyncio.wait_for(self._stale.wait(), min(max(0.0, left), LONGEST))
            self._stale.clear()
            over = [row for row in self._ending.values() if not _is_ending(row, self._clock())]
            await self.refresh()
            for row in over:
                await self._end(row)
            well()
            await asyncio.sleep(PAUSE)

    def _next_end(self) -> float:
        return min((row.expires_at or 0.0 for row in self._ending.values()), default=math.inf)

    async def _end(self, row: GrantRow) -> None:
        def read(store: Store) -> tuple[list[str], list[str]]:
            return lookup.with_theirs(store, row.granter), lookup.with_theirs(store, row.grantee)

        self._cut(*await self._database.read(read))

    # ── letting in ──────────────────────────────────────────────────────────────────────────────────────

    async def allow(
        self, me: Principal, grantee: str, wanted: Wanted, granter: str = ""
    ) -> shapes.Grant:
        """Let `grantee` reach `granter`, which is `me` where none is named; in place of what it was let in for.

        Args:
            grantee: of this organisation a nick or uid; of another one `@nick.org` or uid, which need not exist.

        Raises:
            UnknownRecipient: there is no such agent in this organisation.
            Forbidden: `me` may not let in for `granter`.
            Refused: it has let in as many as it may.
        """
        now = self._clock()

        def store_it(store: Store) -> shapes.Grant:
            whose = lookup.granter(store, self._org, me, granter)
            who, called = lookup.grantee(store, self._org, me, whose, grantee)
            row = GrantRow(
                uuid.uuid4().hex,
                whose,
                who,
                wanted.words,
                me.uid,
                now,
                wanted.expires_at,
                None,
                called,
            )
            _put(store, row)
            return grant_views.grants(store, [row], now)[0]

        made = await self._database.write(store_it)
        await self.refresh()
        return made

    async def listed(
        self, me: Principal, agent: str = "", *, ended: bool = False
    ) -> list[shapes.Grant]:
        """The grants of and to `me` and what belongs to `me`, or those of one agent; all for who administers.

        The newest come first.

        Raises:
            UnknownRecipient, Forbidden: there is no such agent, or its grants are not for `me`.
        """
        now = self._clock()

        def read(store: Store) -> list[shapes.Grant]:
            given, received = lookup.seen(store, self._org, me, agent)
            rows = {row.id: row for row in (*given, *received)}
            newest = sorted(rows.values(), key=lambda row: (row.made_at, row.id), reverse=True)
            shown = grant_views.grants(store, newest, now, {row.id for row in received})
            return [each for each in shown if ended or each["state"] == "valid"]

        return await self._database.read(read)

    async def of_late(self, me: Principal) -> tuple[list[shapes.Grant], list[shapes.GrantRequest]]:
        """What `me` is to know at once: own grants that count or ended within a day, and who asks."""
        now = self._clock()

        def read(store: Store) -> tuple[list[shapes.Grant], list[shapes.GrantRequest]]:
            sides = lookup.sides_of(store, me)
            received = store.grants.to(sides)
            rows = {row.id: row for row in (*store.grants.of(sides), *received)}
            late = [row for row in rows.values() if grant_views.ended_at(row, now) > now - LATELY]
            newest = sorted(late, key=lambda row: (row.made_at, row.id), reverse=True)[:MOST_SHOWN]
            asked = [row for row in store.grants.asked(sides) if row.state == PENDING]
            shown = grant_views.grants(store, newest, now, {row.id for row in received})
            return shown, grant_views.requests(store, asked[:MOST_SHOWN])

        return await self._database.read(read)

    async def revoke(self, me: Principal, ref: str) -> shapes.Grant:
        """End a grant, by its id, the beginning of that, or whom it lets in; one that has ended stays so.

        On return nothing is taken any more that it would have let in.

        Raises:
            NotFound: `me` has given no such grant.
            Conflict: `ref` means several.
        """
        now = self._clock()

        def store_it(store: Store) -> tuple[GrantRow, list[str], list[str]]:
            row = lookup.given(store, me, ref)
            if store.grants.revoke(row.id, now):
                row = replace(row, revoked_at=now)
            return (
                row,
                lookup.with_theirs(store, row.granter),
                lookup.with_theirs(store, row.grantee),
            )

        row, granters, grantees = await self._database.write(store_it)
        await self._settled()
        self._cut(granters, grantees)
        return (await self._database.read(lambda store: grant_views.grants(store, [row], now)))[0]

    async def meant(self, me: Principal, grantee: str, granter: str = "") -> Meant:
        """Whom `me` means to let in, before it is done. Raises as `allow`, but where `me` may not do it alone."""

        def find(store: Store) -> Meant:
            whose = lookup.granter(store, self._org, me, granter, look=True)
            who, called = lookup.grantee(store, self._org, me, whose, grantee)
            parties = store.agents.parties([whose, who])
            ref = who if not called or UID.fullmatch(called) else f"@{called}"
            return Meant(whose, parties[whose].nick, ref, called or parties[who].nick)

        return await self._database.read(find)

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────

    async def ask(
        self, me: Principal, granter: str, scopes: Collection[GrantScope], reason: str
    ) -> None:
        """Ask to be let in; there is one request a pair, and who was denied waits before another one counts.

        An agent that does not exist is asked like one that does.

        Raises:
            UnknownRecipient: nobody in the organisation of `me`, a member, has that nick.
            InvalidInput: it is `me`.
        """
        now = self._clock()
        row = GrantRequestRow(
            uuid.uuid4().hex, "", me.uid, Wanted(scopes).words, one_line(reason, MAX_REASON), now
        )

        def find(store: Store) -> Reached | None:
            return lookup.asked(store, self._org, me, granter)

        found = await self._database.read(find)
        if found is not None and found.agent.uid == me.uid:
            raise InvalidInput("nobody asks to be let in to themselves")
        there = self._place(found.agent.org) if found is not None else None
        if found is not None and there is not None:
            wanted = replace(row, granter=found.agent.uid)
            await there.write(lambda store: _put_request(store, wanted, now))
            return
        nobody = replace(row, granter=me.uid, grantee=NOBODY)

        def take_back(store: Store) -> None:  # so that it takes as long
            store.grants.ask(nobody)
            store.grants.withdraw(nobody.id)

        await self._database.write(take_back)

    async def requests(self, me: Principal, *, answered: bool = False) -> list[shapes.GrantRequest]:
        """The requests to `me` and what belongs to `me`, the newest first; all for who administers."""

        def read(store: Store) -> list[shapes.GrantRequest]:
            rows = store.grants.asked(
                None if me.allows(Scope.ADMIN) else lookup.sides_of(store, me)
            )
            kept = [row for row in rows if answered or row.state == PENDING]
            return grant_views.requests(
                store, sorted(kept, key=lambda row: row.asked_at, reverse=True)
            )

        return await self._database.read(read)

    async def requested(self, me: Principal, request: str) -> shapes.GrantRequest:
        """One request to `me`. Raises NotFound."""

        def find(store: Store) -> shapes.GrantRequest:
            return grant_views.requests(store, [lookup.request(store, me, request)])[0]

        return await self._database.read(find)

    async def answer(
        self, me: Principal, request: str, wanted: Wanted, *, allow: bool
    ) -> shapes.GrantRequest:
        """Answer a request: with `allow` it becomes a grant, for what was asked where `wanted` has no scopes.

        Raises:
            NotFound: there is no such request to `me`.
            Conflict: it was answered; the error says by whom.
            Forbidden: `me` may not let in for who is asked.
            Refused: that one has let in as many as it may.
        """
        now = self._clock()

        def store_it(store: Store) -> shapes.GrantRequest:
            row = lookup.request(store, me, request)
            if allow:
                lookup.granter(store, self._org, me, row.granter)
            if not store.grants.answer(row.id, ALLOWED if allow else DENIED, me.uid, now):
                by = store.agents.parties([row.answered_by])[row.answered_by]
                raise Conflict(f"it was {row.state} by @{by.nick}", remedy="postroom grants list")
            if allow:
                scopes = wanted.words if wanted.scopes else row.scopes
                grant = GrantRow(
                    uuid.uuid4().hex,
                    row.granter,
                    row.grantee,
                    scopes,
                    me.uid,
                    now,
                    wanted.expires_at,
                )
                _put(store, grant)
            after = store.grants.request(row.id)
            return grant_views.requests(store, [after or row])[0]

        done = await self._database.write(store_it)
        await self.refresh()
        return done

    # ── who is reached by grants alone ──────────────────────────────────────────────────────────────────

    async def only(
        self,
        me: Principal,
        agent: str = "",
        only: bool | None = None,
    ) -> shapes.GrantsOnly:
        """Whether an agent, `me` where none is named, is reached by grants alone; `only` changes that.

        Raises:
            UnknownRecipient: there is no such agent.
            Forbidden: `me` may not speak for it.
        """

        def work(store: Store) -> shapes.GrantsOnly:
            uid = lookup.granter(store, self._org, me, agent, look=only is None or only)
            itself = store.grants.reached_by_grants_alone(uid, only)
            party = store.agents.parties([uid])[uid]
            everybody = store.grants.admission(self._org).grants_only
            return {"agent": party.as_json(), "grants_only": itself, "everybody": everybody}

        done = await (self._database.read(work) if only is None else self._database.write(work))
        if only is not None:
            await self._settled()
        return done

    async def admission(self, change: Callable[[Admission], Admission] | None = None) -> Admission:
        """How agents come into the organisation, and whether it is reached by grants alone; perhaps changed."""

        def work(store: Store) -> Admission:
            known = store.grants.admission(self._org)
            if change is not None:
                store.grants.admit(change(known))
            return store.grants.admission(self._org)

        done = await (self._database.read(work) if change is None else self._database.write(work))
        if change is not None:
            await self._settled()
        return done

    async def give(self, me: Principal, ref: str, person: str) -> Agent:
        """Let an agent belong to a person of the organisation, "" for nobody.

        What the one before has let in for it ends.

        Raises:
            UnknownRecipient: there is no such agent or person.
            InvalidInput: it is a person, or the other is none.
            Conflict: it is a session, which belongs to who has it open.
        """
        me.require(Scope.ADMIN)
        now = self._clock()

        def store_it(store: Store) -> tuple[Agent, list[str]]:
            agent = resolve(store, self._org, ref)
            owner = resolve(store, self._org, person) if person else None
            if agent.kind == "human" or (owner is not None and owner.kind != "human"):
                raise InvalidInput("an agent that is no person belongs to a person")
            if store.sessions.get(agent.uid) is not None:
                raise Conflict(f"@{agent.nick} is a session: it belongs to who has it open")
            before = store.grants.give_to(agent.uid, owner.uid if owner else "", now)
            return agent, lookup.let_in_by(store, [agent.uid, before])

        agent, grantees = await self._database.write(store_it)
        await self._settled()
        self._cut([agent.uid], grantees)
        return agent

    async def leaving(self, uid: str) -> Callable[[], Awaitable[None]]:
        """To be called before an agent or a person is removed; what it returns, after that."""

        def read(store: Store) -> tuple[list[str], list[str]]:
            granters = lookup.with_theirs(store, uid)
            return granters, lookup.let_in_by(store, granters)

        granters, grantees = await self._database.read(read)

        async def left() -> None:
            await self._settled()
            self._cut(granters, grantees)

        return left

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    async def _settled(self) -> None:
        """Return when nothing is taken any more by what was before."""
        await self.refresh()
        await self._decisions.settled()

    def _place(self, org: str) -> Database | None:
        return self._database if org == self._org else self._elsewhere(org)


def _is_ending(row: GrantRow, now: float) -> bool:
    """Whether it counts until a time to come."""
    return row.revoked_at is None and row.expires_at is not None and now < row.expires_at


def _put(store: Store, row: GrantRow) -> None:
    """Store a grant. Raises Refused where its granter has as many as it may have."""
    others = [one for one in store.grants.of([row.granter]) if one.grantee != row.grantee]
    over = sorted(
        (ended, one.id)
        for one in others
        if (ended := grant_views.ended_at(one, row.made_at)) <= row.made_at
    )
    if len(others) - len(over) >= MAX_GRANTS:
        raise Refused(
            f"it has let in {MAX_GRANTS}, the most that one agent may let in",
            remedy="take some back: postroom grants revoke @NICK",
        )
    for _, grant in over[: max(0, len(others) - 2 * MAX_GRANTS + 1)]:
        store.grants.remove(grant)
    store.grants.put(row)


def _put_request(store: Store, row: GrantRequestRow, now: float) -> None:
    """Store a request, unless its granter has denied it, or is asked by too many."""
    known = store.grants.asked([row.granter])
    before = next((one for one in known if one.grantee == row.grantee), None)
    if (
        before is not None
        and before.state == DENIED
        and now < (before.answered_at or 0) + ASK_AGAIN
    ):
        return
    if before is None and sum(one.state == PENDING for one in known) >= MAX_ASKED_OF:
        return
    store.grants.ask(row)
