"""The HTTP door of A2A: cards, and JSON-RPC by which A2A clients ask agents (A2A 1.0, section 9).

It translates HTTP and nothing else. Who may call is decided by who listens: the port's owner checks Host and Origin,
the socket lies in a closed folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol
from urllib.parse import unquote

from postroom.directory.cards import CARD_PATH, SENDER_TOKEN, Card
from postroom.errors import NotFound, PostroomError
from postroom.http.server import Answer, Content, Events, HttpRequest
from postroom_a2a.json_operations import VERSION, not_spoken
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, Id, RpcError, id_of, read_call, read_json, refusal, result

CARD_PATHS = (CARD_PATH, "/.well-known/agent.json")
"""Where A2A 1.0 looks for a card, and where its versions before 0.3 did."""

ENDPOINT = "/a2a"
AGENTS = f"{ENDPOINT}/agents/"
"""Before the nick or uid of another agent."""

CARD_AGE = 60
"""Seconds for which a card may be used without asking again: its worker may be started anew with another."""

LOOK = 1.0
"""Seconds between two looks whether the client of a call still waits."""


class Others(Protocol):
    """Other agents as A2A servers."""

    async def operations(self, name: str, /) -> Operations:
        """The operations of the agent with that nick or uid."""
        ...

    async def card(self, name: str, /) -> Card:
        """Its card. Raises as `operations`."""
        ...


class A2ARoutes:
    """The A2A routes of one worker.

    Args:
        others: the agents that its agent can ask; None for nobody.
        card: the worker's, {} for none.
        port: that the local API listens on.
    """

    def __init__(
        self, operations: Operations, card: Card, port: int, others: Others | None = None
    ) -> None:
        self._operations = operations
        self._others = others
        self._url = f"http://127.0.0.1:{port}"
        self._card = served_card(card, f"{self._url}{ENDPOINT}") if card else None

    async def handle(self, request: HttpRequest) -> Answer:
        """Answer one request.

        Raises:
            NotFound: there is no such route, or no card.
        """
        path = request.target
        if self._others is not None and path.startswith(AGENTS):
            name, _, rest = path.removeprefix(AGENTS).partition("/")
            if request.method == "GET" and f"/{rest}" in CARD_PATHS:
                url = f"{self._url}{AGENTS}{name}"
                return card_answer(
                    request, served_card(await self._others.card(unquote(name)), url)
                )
            if request.method == "POST" and name and not rest:
                return await self._answer(request, await self._others.operations(unquote(name)))
        # Who has the endpoint as a base URL asks for what lies below it.
        if request.method == "GET" and path.removeprefix(ENDPOINT) in CARD_PATHS:
            if self._card is None:
                raise NotFound("this worker has no Agent Card")
            return card_answer(request, self._card)
        if request.method == "POST" and path in {ENDPOINT, f"{ENDPOINT}/"}:
            return await self._answer(request, self._operations)
        raise NotFound(f"there is no {request.method} {request.path[:100]}")

    async def _answer(self, request: HttpRequest, operations: Operations) -> Answer:
        call_id: Id = None
        try:
            if not request.is_json:
                raise RpcError(Code.INVALID_REQUEST, "the Content-Type has to be application/json")
            record = read_json(request.body)
            call_id = id_of(record)
            method, params = read_call(record)
            call = Call(call_id, method, params, parameters=_parameters(request))
            if operations.streams(method):
                return await _streamed(call, operations)
            return 200, result(call_id, json.loads(await _waited_for(request, operations, call)))
        except RpcError as error:
            return 200, refusal(call_id, error)
        except PostroomError as error:
            return 200, refusal(call_id, RpcError.of(error))


async def _waited_for(request: HttpRequest, operations: Operations, call: Call) -> bytes:
    """The result, for as long as the client waits for it."""
    answering = asyncio.create_task(operations.answer(call))
    try:
        while not answering.done() and not request.abandoned():
            await asyncio.wait({answering}, timeout=LOOK)
        if not answering.done():
            raise RpcError(Code.INTERNAL_ERROR, "nobody waits for the answer")
        return answering.result()
    finally:
        answering.cancel()
        await asyncio.wait({answering})


async def _streamed(call: Call, operations: Operations) -> Answer:
    """The stream, once it has begun: what is refused before is a plain answer."""
    results = operations.stream(call)
    try:
        first = await anext(results, None)
    except BaseException:
        await results.aclose()
        raise
    return 200, Events(_responses(call.id, first, results))


async def _responses(
    call_id: Id, first: bytes | None, results: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    head = b'{"jsonrpc":"2.0","id":' + json.dumps(call_id).encode() + b',"result":'
    async with aclosing(results):
        try:
            if first is not None:
                yield head + first + b"}"
            async for each in results:
                yield head + each + b"}"
        except RpcError as error:
            yield json.dumps(refusal(call_id, error)).encode()


def card_answer(request: HttpRequest, card: Card) -> Answer:
    """A card with what caches want to know; nothing but that for who has it already (RFC 9110, section 13.1.2)."""
    body = json.dumps(card).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = (("etag", tag), ("cache-control", f"private, max-age={CARD_AGE}"))
    known = request.headers.get("if-none-match", "")
    if tag in known or known.strip() == "*":
        return 304, Content(headers, _pieces(), lambda: None)
    size = ("content-length", str(len(body)))
    return 200, Content(
        (("content-type", "application/json"), size, *headers), _pieces(body), lambda: None
    )


async def _pieces(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


def served_card(card: Card, url: str) -> Card:
    """A card as it is given at this door: with the address `url` of the door first.

    What the bus address demands of callers is nothing that a caller over HTTP could do, so it is not required here; and
    whoever has signed the card has not signed this.
    """
    own = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}
    capabilities = dict(card.get("capabilities", {}))
    if "extensions" in capabilities:
        capabilities["extensions"] = [_optional(each) for each in capabilities["extensions"]]
    interfaces = [own, *card.get("supportedInterfaces", [])]
    kept = {name: value for name, value in card.items() if name != "signatures"}
    return {**kept, "supportedInterfaces": interfaces, "capabilities": capabilities}


def _optional(extension: dict[str, Any]) -> dict[str, Any]:
    if extension.get("uri") != SENDER_TOKEN:
        return extension
    return {name: value for name, value in extension.items() if name != "required"}


def _parameters(request: HttpRequest) -> dict[str, str]:
    """The service parameters of a request.

    Raises:
        RpcError: it names no version. That means 0.3 (section 3.6.2), which names its methods in another way.
    """
    version = request.headers.get("a2a-version", "") or request.query.get("A2A-Version", "")
    if not version:
        raise not_spoken()
    return {"A2A-Version": version}
