"""Agents of other people that tasks are given to: each is an agent of kind `external`, and where it is called.

They are hostile. What their Agent Cards say here is cleaned, cut and checked; and each may only say so much (`Pace`),
since what it sends costs this process time, whatever it says.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from postroom.directory.cards import read_given
from postroom.directory.outside import OutsideAgents
from postroom.errors import Forbidden, InvalidInput, InvalidName, NameTaken, NotFound, Unauthorized
from postroom.observe import tracing
from postroom.protocol import shapes
from postroom.protocol.ids import check_nick
from postroom.protocol.limits import MAX_DESCRIPTION, MAX_LABEL, MAX_SKILLS
from postroom.protocol.parts import EVERYTHING
from postroom.protocol.rates import Rate
from postroom.protocol.traces import TRACEPARENT
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom_a2a.http.client import A2AClient, fetch_card
from postroom_a2a.http.client_attempts import Calling
from postroom_a2a.http.client_cards import Interface, check_url, choose
from postroom_a2a.http.client_port import HttpExchange, HttpReply, HttpRequest
from postroom_a2a.retry import RetryPolicy
from postroom_a2a.text import one_line, printable

DEADLINE = 24 * 3600.0
"""Seconds that a task of such an agent may take if nobody says otherwise."""

LONGEST_DEADLINE = 366 * 24 * 3600.0

CARD_TIMEOUT = 15.0
"""Seconds for asking for a card while somebody waits for it."""

Secrets = Callable[[str, str, str], Mapping[str, str]]
"""Returns the headers of the named credential for a request of an agent (uid) to a URL; none if it is not for that."""

LONGEST_NICK = 32
MOST_NAMESAKES = 100
"""Nicks that are tried for one agent."""

_MODE = re.compile(r"[\w.+-]+/[\w.+*-]+|\*/\*|text|data|file")
_OTHER = re.compile(r"[^a-z0-9]+")

BYTES_A_SECOND = 256.0 * 1024
BURST = 16.0 * 1024 * 1024
"""Bytes of all answers of one agent in a second, and at once: two of the largest answers."""

PIECE = 256.0
"""Bytes that a piece of an answer counts at least: a chunk of one byte takes as long as a large one."""


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


def nicks_for(card: dict[str, Any], url: str) -> Iterable[str]:
    """Nicks for the agent of a card, the best one first; none of them is reserved."""
    for said in (str(card.get("name", "")), urlsplit(url).hostname or "", "agent"):
        nick = _OTHER.sub("-", said.lower())[:LONGEST_NICK].strip("-")
        for number in range(1, MOST_NAMESAKES):
            tried = nick if number == 1 else f"{nick}-{number}"
            try:
                yield check_nick(tried)
            except InvalidName:
                break


def cleaned(card: dict[str, Any]) -> dict[str, Any]:
    """What a card says of its agent, as `directory.cards.read_given` takes it.

    What is malformed is left out: a card that says too much is no reason not to work with its agent. The media types
    that it takes are advice: many servers name a default of their framework, and take more. So a task goes out, and who
    does not take it says so.
    """
    said: dict[str, Any] = {}
    if description := _text(card.get("description"), MAX_DESCRIPTION):
        said["description"] = description
    if version := _word(card.get("version")):
        said["version"] = version
    for name in ("defaultInputModes", "defaultOutputModes"):
        if modes := _modes(card.get(name)):
            said[name] = modes
    said["defaultInputModes"] = _advice(said.get("defaultInputModes", ()))
    skills: dict[str, dict[str, Any]] = {}
    for each in _objects(card.get("skills"))[:MAX_SKILLS]:
        skill = _skill(each)
        if skill is not None:
            skills.setdefault(skill["id"], skill)
    if skills:
        said["skills"] = list(skills.values())
    try:
        return read_given(said, "", "")
    except InvalidInput:  # too large in all
        return {name: value for name, value in said.items() if name != "skills"}


def _skill(given: dict[str, Any]) -> dict[str, Any] | None:
    name = _word(given.get("id")) or _word(given.get("name"))
    if not name:
        return None
    skill: dict[str, Any] = {
        "id": name,
        "name": _word(given.get("name")) or name,
        "description": _text(given.get("description"), MAX_DESCRIPTION) or name,
        "tags": _words(given.get("tags")) or ["skill"],
    }
    if modes := _modes(given.get("inputModes")):
        skill["inputModes"] = _advice(modes)
    return skill


def _text(value: object, most: int) -> str:
    return printable(value)[:most].strip() if isinstance(value, str) else ""


def _word(value: object) -> str:
    return one_line(value)[:MAX_LABEL].strip() if isinstance(value, str) else ""


def _words(value: object) -> list[str]:
    found = [_word(each) for each in value] if isinstance(value, list) else []
    return [each for each in found if each][:MAX_SKILLS]


def _modes(value: object) -> list[str]:
    return [each for each in _words(value) if _MODE.fullmatch(each)]


def _advice(modes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*list(modes)[: MAX_SKILLS - 1], EVERYTHING)))


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class PacedReply:
    """An answer that is read no faster than its sender may say things; a `HttpReply`."""

    def __init__(self, reply: HttpReply, pause: Callable[[int], float]) -> None:
        self._reply = reply
        self._pause = pause
        self.status = reply.status
        self.headers = reply.headers

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes."""
        async with aclosing(self._reply.pieces()) as pieces:
            async for piece in pieces:
                yield piece
                if pause := self._pause(len(piece)):
                    await asyncio.sleep(pause)


class Pace:
    """What one agent may send, by all of its connections together."""

    def __init__(self, rate: float = BYTES_A_SECOND, burst: float = BURST) -> None:
        self._rate = Rate(rate, burst, 0.0)

    def slows(self, exchange: HttpExchange) -> HttpExchange:
        """`exchange`, whose answers are read at this pace."""

        @asynccontextmanager
        async def paced(request: HttpRequest) -> AsyncGenerator[HttpReply]:
            async with exchange(request) as reply:
                yield PacedReply(reply, self._pause)

        return paced

    def _pause(self, size: int) -> float:
        return self._rate.take(size + PIECE, asyncio.get_running_loop().time())
