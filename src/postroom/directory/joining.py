"""How agents and people of others come in: by an invite with its code, or where an organisation is open to all.

A code is kept as its digest. Whatever is wrong with an invite or a code, the answer is the same (`NotInvited`), and the
same is done for it. Under open registration every nick gets a suffix, so that no answer says which names there are; who
was invited is told that a name is taken.

A caller whose answer was lost asks again under the same key, which is a secret of its own: it gets the same agent with
the same API key. Uid and API key follow from it, so nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.directory.agents import Directory
from postroom.directory.claims import code_digest, new_code
from postroom.directory.grants import NOBODY, OPEN
from postroom.directory.iam import LocalIAM, NewKey, scopes_of
from postroom.directory.outside import OutsideAgents
from postroom.errors import Conflict, InvalidInput, NameTaken, NotFound, NotInvited, Refused
from postroom.identity.tokens import digest, equal
from postroom.observe.supervision import well
from postroom.protocol.ids import check_name, check_nick
from postroom.protocol.limits import MAX_CODE_TRIES, MAX_EMAIL, MAX_STRANGERS
from postroom.protocol.principal import USUAL_SCOPES, Principal, Scope
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.invites import InviteRow
from postroom_a2a.text import one_line

INVITE, CLOSED = "invite", "closed"
"""Ways in (`store.grants.Admission`), beside `OPEN`; and how an agent has come in."""

SUFFIX = 5
"""Characters that open registration puts behind a nick."""

LONGEST = 64 - SUFFIX
NAMESAKES = 8
"""Suffixes that are tried for one nick."""

SECRET = 32
"""Characters of a joiner's key at least."""

_BETWEEN = re.compile(r"[\s.]+")
_EMAIL = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*"
)
"""As browsers check it (HTML, valid e-mail address); whether it is anybody's, nobody knows."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """Who wants to come in.

    Attributes:
        invite, code: "" without one.
        name: the wanted nick, with or without `@`; blanks become hyphens.
        email: of its owner, as it says; "" for none.
        card: what its Agent Card says of it; people have none.
        key: its secret, the same when it asks again.
    """

    name: str
    invite: str = ""
    code: str = field(default="", repr=False)
    email: str = ""
    card: Mapping[str, Any] | None = None
    key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)


@dataclass(frozen=True, slots=True)
class Joined:
    """Who has come in; `way` is `invite` or `open`."""

    agent: Agent
    key: NewKey
    way: str


@dataclass(frozen=True, slots=True)
class _Admitted:
    """What a joiner may become; `known` is the agent that it is already."""

    way: str
    kind: str
    scopes: Collection[Scope]
    made_by: str
    known: Agent | None


class Joining:
    """The invites of an organisation, and who comes in."""

    def __init__(
        self,
        database: Database,
        directory: Directory,
        outside: OutsideAgents,
        iam: LocalIAM,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._directory = directory
        self._outside = outside
        self._iam = iam
        self._clock = clock
        self._wrong: Counter[str] = Counter()
        self._tried = asyncio.Event()

    async def run(self) -> None:
        """Write down how many wrong codes came for invites, until cancelled; no answer waits for that.

        Otherwise its time would tell that there is such an invite.
        """
        while True:
            await self._tried.wait()
            counted = dict(self._wrong)

            def note(store: Store, counted: Mapping[str, int] = counted) -> None:
                for invite, wrong in counted.items():
                    store.invites.tried(invite, wrong)

            await self._database.write(note)
            self._wrong -= Counter(counted)
            if not self._wrong:
                self._tried.clear()
            well()
            await asyncio.sleep(1.0)

    # ── invites ─────────────────────────────────────────────────────────────────────────────────────────

    async def invite(
        self, me: Principal, kind: str, scopes: Collection[Scope], uses: int, seconds: float
    ) -> tuple[InviteRow, str]:
        """A new invite, and its code, which is kept nowhere."""
        code, now = new_code(), self._clock()
        named = " ".join(scope.value for scope in Scope if scope in scopes)
        row = InviteRow(
            *(secrets.token_hex(8), code_digest(code), kind, named, uses, 0, me.uid),
            *(now, now + seconds),
        )

        def add(store: Store) -> None:
            self._iam.check_maker(store, me)
            store.invites.add(row)

        await self._database.write(add)
        return row, code

    async def invites(self) -> list[InviteRow]:
        """All invites, the newest first, ended ones too."""
        return await self._database.read(lambda store: store.invites.listed())

    async def end(self, invite: str) -> InviteRow:
        """End an invite; one that has ended stays so. Raises NotFound."""
        now = self._clock()

        def end(store: Store) -> InviteRow | None:
            store.invites.end(invite, now)
            return store.invites.get(invite)

        ended = await self._database.write(end)
        if ended is None:
            raise NotFound(
                f"there is no invite {one_line(invite, 64)!r}", remedy="postroom invite list"
            )
        return ended

    def state(self, row: InviteRow) -> str:
        """`valid`, `used`, `expired`, `revoked`, or `tried` for one for which too many wrong codes came."""
        if row.ended_at is not None:
            return "revoked"
        if row.uses <= 0:
            return "used"
        if row.tries + self._wrong[row.id] >= MAX_CODE_TRIES:
            return "tried"
        return "expired" if row.expires_at <= self._clock() else "valid"

    async def email(self, uid: str) -> str:
        """What an agent says of its owner, "" for nothing. Nobody has checked it."""
        return await self._database.point(lambda store: store.invites.email(uid))

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────

    async def join(self, who: Joiner) -> Joined:
        """Give who comes in an address and a key; the same again for who asks again.

        Raises:
            NotInvited: it may not come in, whatever the reason.
            InvalidInput: name, e-mail address, card or key are not valid.
            InvalidName, NameTaken: of who was invited, as `Directory.register`.
            Refused: the organisation has as many agents of open registration as it can have.
            Conflict: it came in before, and the key that it got then counts no more.
        """
        if len(who.key) < SECRET:
            raise InvalidInput(
                f"key has fewer than {SECRET} characters: who guesses it gets your address",
                remedy="leave it out, or: openssl rand -hex 32",
            )
        nick = wanted_nick(who.name)
        if who.email and (len(who.email) > MAX_EMAIL or _EMAIL.fullmatch(who.email) is None):
            raise InvalidInput(f"{one_line(who.email, 80)!r} is not an e-mail address")
        admitted = await self._admitted(who)
        if admitted.known is not None:
            return await self._again(who, admitted, admitted.known)
        try:
            return await self._added(who, admitted, nick)
        except NameTaken:
            # The same one may have asked twice at once.
            uid = self._uid(who)
            known = await self._database.point(lambda store: store.agents.agent_by_uid(uid))
            if known is None:
                raise
            return await self._again(who, admitted, known)

    async def _admitted(self, who: Joiner) -> _Admitted:
        """Look at the invite; the same is done for each that does not count. Raises NotInvited."""
        uid = self._uid(who)

        def look(store: Store) -> tuple[str, InviteRow | None, Agent | None, Agent | None]:
            row = store.invites.get(who.invite)
            maker = store.agents.agent_by_uid(row.made_by if row else NOBODY)
            known = store.agents.agent_by_uid(uid)
            return store.grants.admission(self._directory.org).registration, row, maker, known

        registration, row, maker, known = await self._database.point(look)
        right = equal(code_digest(who.code), row.sha256 if row else digest(""))
        if not who.invite and registration == OPEN:
            return _Admitted(OPEN, "external", USUAL_SCOPES, "", known)
        if row is None or maker is None or maker.retired or registration == CLOSED:
            raise not_invited()
        if not right:
            self._wrong[row.id] += 1
            self._tried.set()
            raise not_invited()
        state = self.state(row)
        if state == "tried" or (known is None and state != "valid"):
            raise not_invited()
        return _Admitted(INVITE, row.kind, scopes_of(row.scopes), row.made_by, known)

    async def _added(self, who: Joiner, admitted: _Admitted, nick: str) -> Joined:
        made: list[NewKey] = []

        def also(store: Store, agent: Agent) -> None:
            if admitted.way == OPEN:
                if store.invites.count(agent.org, OPEN) >= MAX_STRANGERS:
                    raise Refused(
                        "this organisation takes nobody more without an invite",
                        remedy="ask who runs it for one",
                    )
            elif not store.invites.use(who.invite, MAX_CODE_TRIES, self._clock()):
                raise not_invited()
            closed = admitted.way == OPEN
            store.invites.joined(agent.uid, admitted.way, who.email, closed=closed)
            secret = _secret(store, agent, who)
            made.append(
                self._iam.first_key(store, agent, admitted.scopes, secret, admitted.made_by)
            )

        uid = self._uid(who)
        if admitted.kind == "human":
            check_nick(nick)  # the operator alone may have a reserved name
            agent = await self._directory.register(nick, "human", uid=uid, also=also)
        elif admitted.way == INVITE:
            agent = await self._outside.add(nick, admitted.kind, who.card, uid=uid, also=also)
        else:
            agent = await self._suffixed(nick, who, uid, also)
        return Joined(agent, made[-1], admitted.way)

    async def _suffixed(
        self, nick: str, who: Joiner, uid: str, also: Callable[[Store, Agent], None]
    ) -> Agent:
        """An agent whose nick nobody has chosen whole. Whether there is one of the bare nick is not asked."""
        base = nick[:LONGEST].rstrip("-_")
        for left in reversed(range(NAMESAKES)):
            named = f"{base}-{secrets.token_hex(2)}"
            try:
                return await self._outside.add(named, "external", who.card, uid=uid, also=also)
            except NameTaken:
                known = await self._database.point(lambda store: store.agents.agent_by_uid(uid))
                if known is not None or not left:
                    raise
        raise AssertionError("a nick was taken or given")

    async def _again(self, who: Joiner, admitted: _Admitted, known: Agent) -> Joined:
        def find(store: Store) -> NewKey | None:
            secret = _secret(store, known, who)
            bearer = store.keys.bearer(digest(secret))
            key = store.keys.get(bearer.id) if bearer else None
            if known.retired or key is None or key.revoked_at is not None:
                return None
            return NewKey(key, secret)

        key = await self._database.point(find)
        if key is None:
            raise Conflict(
                "you have joined before, and the key that you got then counts no more",
                remedy="ask who runs the post room for another key, or for another invite",
            )
        return Joined(known, key, admitted.way)

    def _uid(self, who: Joiner) -> str:
        """The uid of who comes in. It follows from its secret, so it is the same when it asks again."""
        named = f"{self._directory.org}\0{who.invite}\0{code_digest(who.code)}\0{who.key}"
        return digest(named)[:32]


def wanted_nick(name: str) -> str:
    """The nick that somebody wants who calls itself `name`; raises InvalidName where it cannot be one."""
    return check_name(_BETWEEN.sub("-", name.strip().removeprefix("@")).lower(), "nick")


def not_invited() -> NotInvited:
    """The one error for who may not come in."""
    return NotInvited(
        "nobody joins so: the invite is unknown, used up or over, its code is wrong, or one is needed",
        remedy="ask who runs the post room for another invite: postroom invite",
    )


def _secret(store: Store, agent: Agent, who: Joiner) -> str:
    """The first API key of an agent: nobody can make it who has not the agent's own secret, and the joiner's key."""
    own = store.agents.message_secret(agent.uid) or b""
    named = f"join\0{who.key}".encode()
    return f"a2a_{agent.uid}_{hmac.digest(own, named, 'sha256').hex()}"
