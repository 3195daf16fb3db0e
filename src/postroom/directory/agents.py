"""The directory: every agent that has an address, its names (docs/architecture.md, Ids), and what it may be sent."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from postroom.directory.grants import split
from postroom.directory.strangers import tied
from postroom.errors import InvalidInput, InvalidName, NameTaken, NotFound, UnknownRecipient
from postroom.protocol.blobs import PREFIX, named_in, sha256_of
from postroom.protocol.content import Content
from postroom.protocol.ids import UID, check_name, check_nick, check_uid, skeleton
from postroom.protocol.parts import TEXT, check_takes, kind_of
from postroom.protocol.principal import Principal
from postroom.settings import DEFAULT_ORG
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom_a2a.text import one_line

KINDS = ("human", "worker", "external", "service")

SECRET_BYTES = 32

Cards = Callable[[str], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""Returns cards by uid, at least that of the agent with the given uid if it has one."""


class Directory:
    """The agents of one organisation.

    Args:
        new_uid: makes uids; none is ever used again.
    """

    def __init__(
        self,
        database: Database,
        *,
        org: str = DEFAULT_ORG,
        clock: Callable[[], float] = time.time,
        new_uid: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.org = org
        self._database = database
        self._clock = clock
        self._new_uid = new_uid

    async def register(
        self,
        nick: str,
        kind: str,
        *,
        uid: str = "",
        projects: Iterable[str] = (),
        first: Callable[[Store], None] | None = None,
        also: Callable[[Store, Agent], None] | None = None,
    ) -> Agent:
        """Give a new agent its address.

        Args:
            uid: "" for a new one.
            first: frees the nick, in the same transaction.
            also: writes further rows that the agent must not be without, in the same transaction.

        Raises:
            InvalidName: it is malformed, or it impersonates people or the system.
            NameTaken: another agent has that name, or one that looks the same.
        """
        if kind == "human":
            check_name(nick, "nick")  # people may have reserved names
        else:
            check_nick(nick)
        if UID.fullmatch(nick):
            raise InvalidName(f"{nick!r} looks like a uid")
        if kind not in KINDS:
            raise InvalidInput(
                f"{kind!r} is not a kind of agent", remedy=f"one of {', '.join(KINDS)}"
            )
        agent = Agent(check_uid(uid or self._new_uid()), self.org, nick, kind, self._clock())
        names = sorted({check_name(project, "project") for project in projects})
        secret = secrets.token_bytes(SECRET_BYTES)

        def store(store: Store) -> None:
            if first is not None:
                first(store)
            _check_free(store, agent)
            store.agents.add_agent(agent, skeleton(nick), secret)
            store.agents.set_memberships(agent.uid, names)
            if also is not None:
                also(store, agent)

        await self._database.write(store)
        return agent

    async def rename(self, agent: Agent, nick: str) -> Agent:
        """Give an agent another nick; the one before is free at once.

        Raises:
            InvalidName, NameTaken: as `register`.
            UnknownRecipient: it was retired meanwhile.
        """
        return await self._database.write(lambda store: rename(store, agent, nick))

    async def resolve(self, ref: str) -> Agent:
        """The agent that `@nick`, a uid or a bare nick names.

        Raises:
            UnknownRecipient: no agent has that name, or it is retired.
        """
        return await self._database.point(lambda store: resolve(store, self.org, ref))

    async def known(self, ref: str) -> Agent:
        """As `resolve`, also an agent of another organisation (`@nick.org`, uid) that a grant ties to this one."""
        return await self._database.point(lambda store: known(store, self.org, ref))

    async def get(self, uid: str) -> Agent:
        """The agent with that uid, retired or not."""
        agent = await self._database.point(lambda store: store.agents.agent_by_uid(uid))
        if agent is None:
            raise NotFound(f"there is no agent with the uid {uid!r}")
        return agent

    async def all(self, *, retired: bool = False) -> list[Agent]:
        """The agents by nick; with `retired` the retired ones too."""
        return await self._database.read(
            lambda store: store.agents.all_agents(self.org, retired=retired)
        )

    async def seen_by(self, me: Principal | None) -> Mapping[str, frozenset[str]] | None:
        """The uids that a stranger sees, with the scopes for which each has let it in; None for who sees everybody."""
        if me is None or not me.stranger:
            return None
        now = self._clock()
        return await self._database.point(lambda store: tied(store, me, now))

    async def retire(self, uid: str) -> None:
        """Take an address away for ever; its name is free again, its messages stay (see `Clerk.sweep`)."""
        at = self._clock()

        def retire(store: Store) -> bool:
            store.grants.retired(uid, at)
            return store.agents.retire_agent(uid, at)

        if not await self._database.write(retire):
            raise NotFound(f"there is no agent with the uid {uid!r}")

    async def message_secret(self, uid: str) -> bytes:
        """The HMAC key of the message ids of `uid`; only its sidecar gets it."""
        secret = await self._database.point(lambda store: store.agents.message_secret(uid))
        if secret is None:
            raise NotFound(f"there is no agent with the uid {uid!r}")
        return secret

    async def projects(self, uid: str) -> tuple[str, ...]:
        """The projects that `uid` belongs to."""
        return await self._database.point(lambda store: store.agents.projects_of(uid))

    async def set_projects(self, uid: str, projects: Iterable[str]) -> None:
        """Replace the projects that `uid` belongs to."""
        names = [check_name(project, "project") for project in projects]
        await self._database.write(lambda store: store.agents.set_memberships(uid, names))


def resolve(store: Store, org: str, ref: str) -> Agent:
    """The agent of `org` that `@nick`, a uid or a bare nick names; raises UnknownRecipient if none does."""
    if UID.fullmatch(ref):
        agent = store.agents.agent_by_uid(ref)
    else:
        agent = store.agents.agent_by_nick(org, ref.removeprefix("@"))
    if agent is None or agent.retired or agent.org != org:
        raise unknown(ref)
    return agent


def known(store: Store, org: str, ref: str) -> Agent:
    """As `resolve`, also an agent of another organisation that a grant, also an ended one, ties to this one.

    That an agent exists there which is not tied to this one nobody is told.
    """
    nick, named = split(ref)
    if UID.fullmatch(ref):
        agent = store.agents.anywhere(ref)
    elif named not in ("", org):
        found = store.grants.reached(org=named, nick=nick)
        agent = found.agent if found is not None else None
    else:
        return resolve(store, org, nick)
    if agent is not None and agent.org == org:
        return resolve(store, org, ref)
    shown = store.agents.shown_here(agent.uid if agent is not None else "")
    if agent is None or not shown:
        raise unknown(ref)
    return agent


def unknown(ref: str) -> UnknownRecipient:
    """The error for an address that nobody has."""
    return UnknownRecipient(
        f"nobody is called {one_line(ref, 80)!r}", remedy="postroom agents lists all"
    )


def rename(store: Store, agent: Agent, nick: str) -> Agent:
    """As `Directory.rename`, within a transaction."""
    check_nick(nick)
    if UID.fullmatch(nick):
        raise InvalidName(f"{nick!r} looks like a uid")
    renamed = replace(agent, nick=nick)
    _check_free(store, renamed, renamed=True)
    if not store.agents.rename_agent(agent.uid, nick, skeleton(nick)):
        raise UnknownRecipient(f"nobody is called {agent.nick!r}")
    return renamed


def _check_free(store: Store, agent: Agent, *, renamed: bool = False) -> None:
    if not renamed and store.agents.agent_by_uid(agent.uid) is not None:
        raise NameTaken(f"the uid {agent.uid} was given before")
    alike = store.agents.agent_by_skeleton(agent.org, skeleton(agent.nick))
    if alike is None or (renamed and alike.uid == agent.uid):
        return
    if alike.nick == agent.nick:
        raise NameTaken(
            f"another agent is called {agent.nick!r}",
            remedy=f"another name with --name NICK; a stopped worker comes back by: postroom restart {agent.nick}",
        )
    raise NameTaken(
        f"{agent.nick!r} can be taken for {alike.nick!r}, which another agent is called"
    )


async def _no_cards(_: str) -> Mapping[str, Mapping[str, Any]]:
    return {}


class TakerOwner(Protocol):
    """What has takers: an organisation."""

    @property
    def takers(self) -> Takers:
        """Asks its agents' cards."""


class Takers:
    """Asks the cards of an organisation's agents before anything is sent to them.

    Args:
        others: the open organisations by name, each with its `takers`.

    Attributes:
        cards: set once the agents are there; until then every card is unknown.
    """

    def __init__(
        self, cards: Cards = _no_cards, others: Mapping[str, TakerOwner] | None = None
    ) -> None:
        self.cards = cards
        self._others = others or {}

    async def check(self, agent: Agent, said: Content, skill: str = "") -> None:
        """As `check_takes`, for one agent."""
        # People read everything, and every adapter takes texts: most messages need no card.
        plain = all(kind_of(part) == TEXT for part in said.parts)
        if agent.kind == "human" or (agent.kind == "worker" and plain and not skill):
            return
        there = self._others.get(agent.org)
        cards = self.cards if there is None else there.takers.cards
        card = (await cards(agent.uid)).get(agent.uid)
        check_takes(card, said.parts, agent.nick, skill)


def check_files(store: Store, sender: str, said: Content) -> dict[str, int]:
    """The sizes of the blobs that are named, by hash.

    Naming a blob that the sender may not read would give its recipient nothing.

    Raises:
        InvalidInput: a blob does not exist, or `sender` may not read it.
    """
    hashes = named_in({"parts": list(said.parts)})
    sizes = store.blobs.sizes(hashes, sender)
    for number, part in enumerate(said.parts, 1):
        url = part.get("url")
        if isinstance(url, str) and url.startswith(PREFIX) and sha256_of(url) not in sizes:
            raise InvalidInput(
                f"part {number} names a blob that is not there, or that you may not read",
                remedy="upload it first: postroom send --file PATH does, or postroom blob put PATH",
            )
    return sizes
