"""The A2A routes of the sidecar's HTTP server: cards, and JSON-RPC for A2A clients (A2A 1.0, section 9).

They translate HTTP and check no caller: the local API checks Host and Origin, and the socket lies in a closed folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

from postroom.directory.cards import CARD_PATH, SENDER_TOKEN, Card
from postroom.errors import NotFound, PostroomError
from postroom.http.server import Answer, Content, Events, HttpRequest
from postroom.sidecar.a2a.peers import Peers
from postroom_a2a.json_operations import VERSION, not_spoken
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, Id, RpcError, id_of, read_call, read_json, refusal, result

CARD_PATHS = (CARD_PATH, "/.well-known/agent.json")
"""The path of a card in A2A 1.0, and in versions before 0.3."""

ENDPOINT = "/a2a"
AGENTS = f"{ENDPOINT}/agents/"
"""Before the nick or uid of another agent."""

CARD_AGE = 60
"""Seconds for which a client may keep a card: the worker's next run may have another."""

LOOK = 1.0
"""Seconds between two checks that the client of a call still waits."""


class A2ARoutes:
    """The A2A routes of one worker.

    Args:
        card: the worker's, {} for none.
        port: the local API's.
        others: the agents that its agent can ask; None for none.
    """

    def __init__(
        self, operations: Operations, card: Card, port: int, others: Peers | None = None
    ) -> None:
        self._operations = operations
        self._others = others
        self._url = f"http://127.0.0.1:{port}"
        self._since = time.time()  # a run never changes its card
        self._card = served_card(card, f"{self._url}{ENDPOINT}") if card else None

    async def handle(self, request: HttpRequest) -> Answer:
        """Answer one request; raises NotFound for an unknown route or a missing card."""
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
        # A client that has the endpoint as its base URL looks for the card below it.
        if request.method == "GET" and path.removeprefix(ENDPOINT) in CARD_PATHS:
            if self._card is None:
                raise NotFound("this worker has no Agent Card")
            return card_answer(request, self._card, self._since)
        if request.method == "POST" and path in {ENDPOINT, f"{ENDPOINT}/"}:
            return await self._answer(request, self._operations)
        raise NotFound(f"there is no {request.method} {request.path[:100]}")

    async def _answer(self, request: HttpRequest, operations: Operations) -> Answer:
        call_id: Id = None
        try:
            if not request.is_json:
                raise RpcError(
                    Code.CONTENT_TYPE_NOT_SUPPORTED, "the Content-Type is not application/json"
                )
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
    """The result, unless the client goes away before."""
    answering = asyncio.create_task(operations.answer(call))
    try:
        while not answering.done() and not request.abandoned():
            await asyncio.wait({answering}, timeout=LOOK)
        if not answering.done():
            raise RpcError(Code.INTERNAL_ERROR, "the client has closed the connection")
        return answering.result()
    finally:
        answering.cancel()
        await asyncio.wait({answering})


async def _streamed(call: Call, operations: Operations) -> Answer:
    """The stream, once it has begun: a refusal before that is a plain answer."""
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


def card_answer(request: HttpRequest, card: Card, since: float = 0.0) -> Answer:
    """A card with headers for caches; 304 for a client that has it already (RFC 9110, section 13.1.2).

    Args:
        since: since when the card is the same, 0 for an unknown instant.
    """
    body = json.dumps(card).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = (("etag", tag), ("cache-control", f"private, max-age={CARD_AGE}"))
    if since:
        headers += (("last-modified", formatdate(since, usegmt=True)),)
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
    """The card as this server gives it, with its own `url` as the first interface.

    An HTTP caller cannot fulfil the sender extension of the bus address, so the card does not require it here. It has
    no signature, since the signed card is another one.
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
        RpcError: no version is named. That means 0.3 (section 3.6.2), which has other names for its methods.
    """
    version = request.headers.get("a2a-version", "") or request.query.get("A2A-Version", "")
    if not version.strip():
        raise not_spoken()
    parameters = {"A2A-Version": version.strip()}
    if extensions := request.headers.get("a2a-extensions", ""):
        parameters["A2A-Extensions"] = extensions
    return parameters
