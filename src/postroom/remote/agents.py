"""Agents of other people that tasks are given to: each is an agent of kind `external`, and where it is called."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from postroom.directory.outside import OutsideAgents
from postroom.errors import Forbidden, InvalidInput, NameTaken, NotFound, Unauthorized
from postroom.observe import tracing
from postroom.protocol import shapes
from postroom.protocol.traces import TRACEPARENT
from postroom.remote.cards import cleaned, nicks_for
from postroom.remote.pace import Pace
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom_a2a.http.client import A2AClient, fetch_card
from postroom_a2a.http.client_attempts import Calling
from postroom_a2a.http.client_cards import Interface, check_url, choose
from postroom_a2a.http.client_port import HttpExchange
from postroom_a2a.retry import RetryPolicy

DEADLINE = 24 * 3600.0
"""Seconds that a task of such an agent may take if nobody says otherwise."""

LONGEST_DEADLINE = 366 * 24 * 3600.0

CARD_TIMEOUT = 15.0
"""Seconds for asking for a card while somebody waits for it."""

Secrets = Callable[[str, str, str], Mapping[str, str]]
"""Returns the headers of the named credential for a request of an agent (uid) to a URL; none if it is not for that."""


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """Where and how an agent of other people is called.

    Attributes:
        url: as a person gave it; its card is found there.
        address, binding, version, tenant: the interface of its card that is called.
        streams, pushes: capabilities that its card states.
        credential: name of the credential of its requests, "" for none.
        deadline: seconds that one of its tasks may take.
    """

    uid: str
    url: str
    address: str
    binding: str
    version: str
    tenant: str = ""
    streams: bool = False
    pushes: bool = False
    credential: str = ""
    deadline: float = DEADLINE

    @property
    def interface(self) -> Interface:
        """The interface."""
        return Interface(self.address, self.binding, self.version, self.tenant)

    def as_json(self) -> shapes.Remote:
        """Shape of the API."""
        return {
            "url": self.url,
            "address": self.address,
            "binding": self.binding,
            "version": self.version,
            "streams": self.streams,
            "credential": self.credential,
            "deadline": self.deadline,
        }


class RemoteAgents:
    """Adds them, and knows where each is called.

    Args:
        exchange: of the post room, with its guard.
        secrets: gives requests their credential.
    """

    def __init__(
        self,
        database: Database,
        outside: OutsideAgents,
        exchange: HttpExchange,
        secrets: Secrets,
        *,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._outside = outside
        self._exchange = exchange
        self._secrets = secrets
        self._retry = retry or RetryPolicy()
        self._clock = clock
        self._known: dict[str, RemoteAgent] = {}
        self._paces: dict[str, Pace] = {}

    async def open(self) -> None:
        """Read them."""
        stored = await self._database.read(lambda store: store.cards.remotes())
        for uid, text in stored.items():
            self._known[uid] = RemoteAgent(uid, **json.loads(text))

    @property
    def uids(self) -> frozenset[str]:
        """Their uids, removed ones too as long as this process runs: what was begun there may have to be ended."""
        return frozenset(self._known)

    def of(self, uid: str) -> RemoteAgent:
        """Where the agent is called; raises NotFound if it is none of them."""
        found = self._known.get(uid)
        if found is None:
            raise NotFound("that agent is not called by A2A")
        return found

    def at(self, url: str) -> RemoteAgent | None:
        """The one that was added with that URL and is not removed."""
        there = self._outside.cards()
        wanted = check_url(url).rstrip("/")
        for each in self._known.values():
            if each.url.rstrip("/") == wanted and each.uid in there:
                return each
        return None

    def client(self, remote: RemoteAgent, retry: RetryPolicy | None = None) -> A2AClient:
        """A client of it."""
        capabilities = {"streaming": remote.streams, "pushNotifications": remote.pushes}
        calling = self._calling(remote.uid, remote.credential, retry)
        return A2AClient(remote.interface, calling, {"capabilities": capabilities})

    def _calling(self, uid: str, credential: str, retry: RetryPolicy | None = None) -> Calling:
        def headers(url: str) -> Mapping[str, str]:
            secrets = self._secrets(uid, credential, url) if credential else {}
            trace = tracing.current()
            return {**secrets, TRACEPARENT: trace} if trace else secrets

        # Who is not added yet is asked for a card alone, which is small.
        pace = self._paces.setdefault(uid, Pace()) if uid else Pace()
        return Calling(pace.slows(self._exchange), headers, retry or self._retry)

    async def add(
        self, url: str, *, nick: str = "", credential: str = "", deadline: float = 0.0
    ) -> Agent:
        """Give the agent at `url` an address here, by its card.

        Args:
            nick: "" for one made of its name.
            credential: name of the credential of its requests.
            deadline: seconds that a task of it may take, 0 for `DEADLINE`.

        Raises:
            InvalidInput: the URL, the deadline or the credential does not fit.
            AddressRefused: it is at a private address that the operator has not opened.
            Forbidden: it asks for a key, or for another one.
            NotFound: there is no card.
            NameTaken, InvalidName: as `Directory.register`.
            PostroomError: it cannot be reached, or its card is none that we speak with.
        """
        if not 0 <= deadline <= LONGEST_DEADLINE:
            raise InvalidInput(f"a deadline is at most {LONGEST_DEADLINE:g} s")
        url = check_url(url)
        try:
            card = await fetch_card(url, self._calling("", credential), timeout=CARD_TIMEOUT)
        except Unauthorized as error:
            self._check_credential(credential, url)
            # Not as Unauthorized: the caller's own key is good.
            raise Forbidden(error.message, remedy=_adding(url, credential)) from error
        to = choose(card)
        self._check_credential(credential, to.url)
        shown = A2AClient(to, self._calling("", credential), card)
        stored = {
            "url": url,
            "address": to.url,
            "binding": to.binding,
            "version": to.version,
            "tenant": to.tenant,
            "streams": shown.streams,
            "pushes": shown.pushes,
            "credential": credential,
            "deadline": deadline or DEADLINE,
        }
        agent = await self._register(nick, card, url, json.dumps(stored))
        self._known[agent.uid] = RemoteAgent(agent.uid, **stored)
        return agent

    def _check_credential(self, name: str, url: str) -> None:
        if name and not self._secrets("", name, url):
            raise InvalidInput(
                f"there is no credential {name!r} for {url}", remedy=_adding(url, name)
            )

    async def _register(self, nick: str, card: dict[str, Any], url: str, stored: str) -> Agent:
        def keep(store: Store, agent: Agent) -> None:
            store.cards.set_remote(agent.uid, stored)

        add = partial(self._outside.add, kind="external", card=cleaned(card), also=keep)
        if nick:
            return await add(nick)
        taken: NameTaken | None = None
        for each in nicks_for(card, url):
            try:
                return await add(each)
            except NameTaken as error:
                taken = error
        raise taken or InvalidInput("no nick can be made of its name", remedy="--name NICK")


def _adding(url: str, credential: str) -> str:
    """What a person types to have a key for the server at `url`."""
    parts = urlsplit(url)
    added = f"--host {parts.scheme}://{parts.netloc}"
    if credential:
        return f"postroom credential add {credential} --replace {added}"
    return f"postroom credential add NAME {added}, then --credential NAME"
