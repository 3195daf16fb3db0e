"""Who is behind an API key, and who may have which: keys and people of one organisation.

`IAMProvider` is the port; `LocalIAM` is ours. A key is shown once, when it is made. Kept is its SHA-256, so what is
looked up is a digest, and the time of that tells nothing about a key.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from postroom.directory.agents import Directory
from postroom.directory.grants import OPEN
from postroom.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Refused,
    Unauthorized,
)
from postroom.identity.tokens import OperatorKey, digest, equal, new_api_key
from postroom.observe.supervision import well
from postroom.protocol.ids import check_nick
from postroom.protocol.limits import MAX_API_KEYS, MAX_LABEL
from postroom.protocol.principal import (
    ALL_SCOPES,
    DOOR,
    KEY,
    OPERATOR_KEY,
    USUAL_SCOPES,
    Principal,
    Scope,
)
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.keys import ApiKey
from postroom_a2a.text import one_line

USE_INTERVAL = 60.0
"""Seconds between two notes of the use of one key."""

SESSION_KEY = "session"
"""Name of the key of a session."""

BEARERS = ("human", "external", "service")
"""Kinds of agents that have API keys; a worker has its door."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; `secret` is shown now and never again."""

    key: ApiKey
    secret: str = field(repr=False)


class IAMProvider(Protocol):
    """Resolves and administers the principals of one organisation that come with API keys.

    What it returns of a revoked or rotated key ends with the call: no key is valid on any API once `revoke_key`,
    `rotate_key` or `retire` has returned, and requests that it opened are cut.
    """

    async def resolve(self, key: str, *, guests: bool = False) -> Principal:
        """The principal that shows `key`; Unauthorized where it is unknown, expired, revoked, or its agent retired.

        Args:
            guests: take keys of other organisations too.
        """

    async def know(self, key: str) -> None:
        """Raise Unauthorized unless some organisation has made `key`; whether it is valid there, `resolve` says."""

    async def worker(self, uid: str) -> Principal:
        """The principal of a worker that the bus has authenticated; Forbidden where it is none, or retired."""

    async def keys(self, uid: str = "", *, ended: bool = False) -> list[ApiKey]:
        """The keys of one agent, or of all, the oldest first; with `ended` the revoked ones too."""

    async def key(self, me: Principal, key_id: str) -> ApiKey:
        """One key; NotFound where it is not one of `me`, who may not administer others'."""

    async def create_key(
        self,
        me: Principal,
        uid: str,
        *,
        scopes: Collection[Scope] = USUAL_SCOPES,
        name: str = "",
        expires_at: float | None = None,
    ) -> NewKey:
        """A new key of agent `uid`, made by `me`: for oneself with no more than one has, otherwise as `admin`.

        Raises:
            Forbidden: `me` may not.
            InvalidInput: no scopes, a time that is past, or an agent that has no keys.
            Refused: the agent has as many keys as it can have.
        """

    async def rotate_key(self, me: Principal, key_id: str) -> NewKey:
        """Another key in the place of one: the same scopes, name and end."""

    async def revoke_key(self, me: Principal, key_id: str) -> ApiKey:
        """End a key; one that was revoked before stays so."""

    async def people(self) -> list[Agent]:
        """The people, by nick."""

    async def add_person(
        self, me: Principal, nick: str, *, scopes: Collection[Scope], expires_at: float | None
    ) -> tuple[Agent, NewKey]:
        """A person with an address, and their first key."""

    async def retire(self, me: Principal, uid: str) -> None:
        """Take an agent's address and all of its keys away for ever."""


class LocalIAM(IAMProvider):
    """The provider over the accounts of a post room (see `IAMProvider`).

    Args:
        owner: whom the operator's key makes its bearer here.
        cut: ends the running requests of the key with that id.
        rotated: called when the operator's key was replaced.
    """

    def __init__(
        self,
        database: Database,
        directory: Directory,
        operator: OperatorKey,
        owner: Agent,
        *,
        cut: Callable[[str], None] = lambda _: None,
        rotated: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._directory = directory
        self._operator = operator
        self._owner = owner
        self._cut = cut
        self._rotated = rotated
        self._clock = clock
        self._noted: dict[str, float] = {}
        self._fresh: dict[str, float] = {}
        self._used = asyncio.Event()

    # ── resolving ───────────────────────────────────────────────────────────────────────────────────────

    async def resolve(self, key: str, *, guests: bool = False) -> Principal:
        sha256 = digest(key)
        if equal(sha256, self._operator.sha256):
            who = self._owner
            return Principal(who.uid, who.org, who.nick, who.kind, ALL_SCOPES, KEY, OPERATOR_KEY)
        found = await self._database.point(lambda store: store.keys.bearer(sha256))
        guest = found is None and guests
        if guest:
            found = await self._database.point(lambda store: store.keys.guest(sha256))
        if found is None or (found.org != self._directory.org and not guest):
            org = await self._database.point(lambda store: store.keys.org_of(sha256))
            if org:
                raise Unauthorized(
                    f"the API key is of the organisation {org!r}, which was not asked",
                    remedy=f"name it: --org {org}, or /orgs/{org} before /v1 in a URL",
                )
            raise _not_valid()
        now = self._clock()
        if found.revoked_at is not None or found.retired_at is not None:
            raise Unauthorized("the API key was revoked", remedy="ask the operator for another one")
        if found.expires_at is not None and found.expires_at <= now:
            raise Unauthorized("the API key has expired", remedy="ask the operator for another one")
        if not guest and now - self._noted.get(found.id, -math.inf) >= USE_INTERVAL:
            self._noted[found.id] = self._fresh[found.id] = now
            self._used.set()
        stranger, scopes = found.joined == OPEN, scopes_of(found.scopes)
        if stranger:  # whatever its key says, nothing of others is its own
            scopes -= {Scope.OPERATE, Scope.ADMIN}
        who = Principal(
            found.uid,
            found.org,
            found.nick,
            found.kind,
            scopes,
            KEY,
            found.id,
            found.expires_at,
            stranger=stranger,
        )
        return who.visiting() if guest else who

    async def know(self, key: str) -> None:
        sha256 = digest(key)
        if equal(sha256, self._operator.sha256):
            return
        if not await self._database.point(lambda store: store.keys.org_of(sha256)):
            raise _not_valid()

    async def worker(self, uid: str) -> Principal:
        who = await self._database.point(lambda store: store.agents.agent_by_uid(uid))
        if who is None or who.retired or who.org != self._directory.org:
            raise Forbidden(f"there is no worker with the uid {one_line(uid, 40)!r}")
        return Principal(who.uid, who.org, who.nick, who.kind, USUAL_SCOPES, DOOR)

    async def run(self) -> None:
        """Write down when keys were used, until cancelled; no request waits for that."""
        while True:
            await self._used.wait()
            times = dict(self._fresh)
            await self._database.write(lambda store, times=times: store.keys.used(times))
            self._fresh = {key: at for key, at in self._fresh.items() if times.get(key) != at}
            if not self._fresh:
                self._used.clear()
            well()
            await asyncio.sleep(1.0)

    # ── keys ────────────────────────────────────────────────────────────────────────────────────────────

    async def keys(self, uid: str = "", *, ended: bool = False) -> list[ApiKey]:
        return await self._database.read(lambda store: store.keys.listed(uid, ended=ended))

    async def key(self, me: Principal, key_id: str) -> ApiKey:
        found = await self._database.point(lambda store: store.keys.get(key_id))
        if found is None or not (found.uid == me.uid or me.allows(Scope.ADMIN)):
            raise NotFound(f"there is no key {one_line(key_id, 64)!r}", remedy="postroom keys list")
        return found

    async def create_key(
        self,
        me: Principal,
        uid: str,
        *,
        scopes: Collection[Scope] = USUAL_SCOPES,
        name: str = "",
        expires_at: float | None = None,
    ) -> NewKey:
        new, sha256 = self._new(me, uid, scopes, name, expires_at)

        def store_it(store: Store) -> None:
            self.check_maker(store, me)
            self._add(store, new.key, sha256)

        await self._database.write(store_it)
        return new

    async def rotate_key(self, me: Principal, key_id: str) -> NewKey:
        if key_id == OPERATOR_KEY:
            return self._rotate_operator(me)
        old = await self.key(me, key_id)
        if not me.allows(Scope.ADMIN) and not scopes_of(old.scopes) <= me.scopes:
            raise Forbidden("that key has more scopes than yours", remedy="revoke it, or use it")
        secret = new_api_key(old.uid)
        now = self._clock()
        key = replace(
            old, id=uuid.uuid4().hex, created_at=now, used_at=None, revoked_at=None, made_by=me.uid
        )
        if not me.allows(Scope.ADMIN):
            key = replace(key, expires_at=_earlier(key.expires_at, me.expires_at))

        def exchange(store: Store) -> None:
            self.check_maker(store, me)
            if not store.keys.revoke(old.id, now):
                raise Conflict("that key was revoked", remedy="postroom keys create")
            self._add(store, key, digest(secret))

        await self._database.write(exchange)
        self._cut(old.id)
        return NewKey(key, secret)

    async def revoke_key(self, me: Principal, key_id: str) -> ApiKey:
        if key_id == OPERATOR_KEY:
            raise Conflict(
                "the operator's key can only be replaced", remedy="postroom keys rotate operator"
            )
        old = await self.key(me, key_id)
        now = self._clock()
        await self._database.write(lambda store: store.keys.revoke(old.id, now))
        self._cut(old.id)
        return await self.key(me, key_id)

    # ── people ──────────────────────────────────────────────────────────────────────────────────────────

    async def people(self) -> list[Agent]:
        return [agent for agent in await self._directory.all() if agent.kind == "human"]

    async def add_person(
        self, me: Principal, nick: str, *, scopes: Collection[Scope], expires_at: float | None
    ) -> tuple[Agent, NewKey]:
        me.require(Scope.ADMIN)
        check_nick(nick)  # the operator alone may have a reserved name
        uid = uuid.uuid4().hex
        new, sha256 = self._new(me, uid, scopes, "", expires_at)

        def also(store: Store, _: Agent) -> None:
            self.check_maker(store, me)
            self._add(store, new.key, sha256)

        return await self._directory.register(nick, "human", uid=uid, also=also), new

    async def retire(self, me: Principal, uid: str) -> None:
        me.require(Scope.ADMIN)
        if uid == self._owner.uid:
            raise Conflict("the owner of the post room cannot be removed")
        await self.withdraw(uid)

    async def withdraw(self, uid: str) -> None:
        """Take an agent's address and all of its keys away for ever, and those of a person's sessions.

        Raises:
            NotFound: there is no such agent, or it is retired.
        """
        now = self._clock()

        def store_it(store: Store) -> list[str]:
            ended: list[str] = []
            for each in (uid, *store.sessions.owned(uid)):
                ended += store.keys.revoke_all(each, now)
                store.grants.retired(each, now)
                if not store.agents.retire_agent(each, now):
                    raise NotFound(f"there is no agent with the uid {uid!r}")
            return ended

        self.cut(await self._database.write(store_it))

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────

    def session_key(self, store: Store, me: Principal, uid: str) -> tuple[NewKey, Collection[str]]:
        """A key of a session of `me`, stored in place of all that the session had; and their ids, for `cut`.

        Raises:
            Unauthorized: the key of `me` was revoked meanwhile.
        """
        self.check_maker(store, me)
        now = self._clock()
        ended = store.keys.revoke_all(uid, now)
        scopes = me.scopes & USUAL_SCOPES
        new, sha256 = _made(me.uid, uid, scopes, SESSION_KEY, me.expires_at, now)
        self._add(store, new.key, sha256)
        return new, ended

    def first_key(
        self, store: Store, agent: Agent, scopes: Collection[Scope], secret: str, made_by: str
    ) -> NewKey:
        """The key of an agent that has just joined, stored; `secret` is its text, `made_by` who has invited it."""
        new, sha256 = _made(made_by, agent.uid, scopes, "", None, self._clock(), secret)
        self._add(store, new.key, sha256)
        return new

    def cut(self, ids: Collection[str]) -> None:
        """End the running requests of keys that were revoked."""
        for key_id in ids:
            self._cut(key_id)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    def _new(
        self,
        me: Principal,
        uid: str,
        scopes: Collection[Scope],
        name: str,
        expires_at: float | None,
    ) -> tuple[NewKey, str]:
        """A key that `me` may make, and its digest; nothing is stored."""
        now = self._clock()
        if not scopes or len(name) > MAX_LABEL:
            raise InvalidInput(f"a key needs a scope, and a name of at most {MAX_LABEL} characters")
        if expires_at is not None and not now < expires_at < now + 10_000 * 86400.0:
            raise InvalidInput("a key expires at a time to come, within 10,000 days")
        if not me.allows(Scope.ADMIN):
            if uid != me.uid:
                me.require(Scope.ADMIN)
            for scope in sorted(scopes):
                me.require(scope)
            # Otherwise a key that expires would be worth as much as one that does not.
            expires_at = _earlier(expires_at, me.expires_at)
        return _made(me.uid, uid, scopes, name, expires_at, now)

    def check_maker(self, store: Store, me: Principal) -> None:
        """Raise Unauthorized if the maker's own key was revoked while its request ran: it must not outlive itself."""
        if me.key_id in ("", OPERATOR_KEY):
            return
        own = store.keys.get(me.key_id)
        if own is None or own.revoked_at is not None:
            raise Unauthorized("the API key was revoked")

    def _add(self, store: Store, key: ApiKey, sha256: str) -> None:
        agent = store.agents.agent_by_uid(key.uid)
        if agent is None or agent.retired or agent.org != self._directory.org:
            raise NotFound(f"there is no agent with the uid {key.uid!r}")
        if agent.kind not in BEARERS:
            raise InvalidInput(
                f"@{agent.nick} is a {agent.kind}: it has its own door and no API keys"
            )
        if not scopes_of(key.scopes) <= USUAL_SCOPES and store.sessions.get(key.uid) is not None:
            raise Forbidden("a session never operates or administers, whoever makes its key")
        if store.keys.count(key.uid, key.created_at) >= MAX_API_KEYS:
            raise Refused(
                f"@{agent.nick} has {MAX_API_KEYS} keys, the most that one agent can have",
                remedy="postroom keys revoke ID",
            )
        # Otherwise who makes keys and revokes them fills the database.
        store.keys.forget_ended(key.uid, key.created_at, MAX_API_KEYS)
        store.keys.add(key, sha256)

    def _rotate_operator(self, me: Principal) -> NewKey:
        if me.key_id != OPERATOR_KEY:
            raise Forbidden("only the operator's key itself can replace the operator's key")
        secret = self._operator.rotate()
        self._cut(OPERATOR_KEY)
        self._rotated()
        return NewKey(self.operator_key(), secret)

    def operator_key(self) -> ApiKey:
        """The operator's key as others are shown; when it was made and used is not kept."""
        scopes = " ".join(scope.value for scope in Scope)
        return ApiKey(OPERATOR_KEY, self._owner.uid, "the operator's", scopes, 0.0)


@lru_cache(maxsize=64)
def _not_valid() -> Unauthorized:
    return Unauthorized(
        "the API key is not valid", remedy="postroom keys create, by who has the scope admin"
    )


def _made(
    made_by: str,
    uid: str,
    scopes: Collection[Scope],
    name: str,
    expires_at: float | None,
    now: float,
    secret: str = "",
) -> tuple[NewKey, str]:
    """A key and its digest; nothing is stored. `secret` is its text, "" for a new one."""
    secret = secret or new_api_key(uid)
    key = ApiKey(
        id=uuid.uuid4().hex,
        uid=uid,
        name=one_line(name, MAX_LABEL),
        scopes=" ".join(scope.value for scope in Scope if scope in scopes),
        created_at=now,
        expires_at=expires_at,
        made_by=made_by,
    )
    return NewKey(key, secret), digest(secret)


def scopes_of(text: str) -> frozenset[Scope]:
    """The scopes that a row names; one of a later version counts for nothing."""
    known = {scope.value: scope for scope in Scope}
    return frozenset(known[word] for word in text.split() if word in known)


def _earlier(one: float | None, other: float | None) -> float | None:
    ends = [end for end in (one, other) if end is not None]
    return min(ends) if ends else None
