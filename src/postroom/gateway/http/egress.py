"""The outside through a worker's door: requests to what its template allows, with the credentials bound to them.

POST /https/api.example.com/v1/messages   for the base URL of a client: the gateway speaks TLS to the host
GET http://example.com/file               as to a proxy
CONNECT example.com:443                   a tunnel (`tunnel`), without credentials
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import replace

import h11

from postroom.errors import AddressRefused, Forbidden, InvalidInput, PostroomError
from postroom.gateway.connection import GatewayConnection
from postroom.gateway.credentials import Credentials, Refusals, headers_of
from postroom.gateway.http.exchange import (
    DEFAULT_TIMEOUTS,
    Exchange,
    Headers,
    RequestRecord,
    Timeouts,
    onward,
    without_user,
)
from postroom.gateway.http.session import HttpSession
from postroom.gateway.http.tunnel import Tunnel
from postroom.http.connection import HttpConnection
from postroom.http.outbound import FairLookups, OutboundPolicy, check_address, connect
from postroom.identity.tokens import matches
from postroom.protocol.egress import AllowList, Target
from postroom.protocol.hosts import is_address, split_authority

_BASE_URL = re.compile(r"/(https?)/([^/?#]*)(.*)")
_ABSOLUTE = re.compile(r"(https?)://([^/?#]*)(.*)")


def target_of(request: h11.Request) -> Target:
    """Where the client wants the request to go.

    Raises:
        InvalidInput: the request names no host, or more than one.
    """
    text = request.target.decode("ascii")
    found = _BASE_URL.fullmatch(text) or _ABSOLUTE.fullmatch(text)
    if found is None:
        raise InvalidInput(
            "the request names no host to send it to",
            remedy="use $POSTROOM_EGRESS/https/<host> as the base URL",
        )
    try:
        return Target.parse(*found.groups())
    except InvalidInput as error:
        if "@" not in text:
            raise
        # The error would repeat what may be a password.
        raise InvalidInput(
            "a host may not have a user before it", remedy="leave out what is up to @"
        ) from error


class EgressProxy:
    """The proxy of the protocol `egress`."""

    def __init__(
        self,
        policy: OutboundPolicy,
        credentials: Credentials,
        tls: Callable[[], ssl.SSLContext],
        refusals: Refusals,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._policy = policy
        self._lookups = FairLookups(policy.resolve)
        self._credentials = credentials
        self._tls = tls
        self._refusals = refusals
        self._timeouts = timeouts

    async def __call__(
        self, conn: GatewayConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection to its end.

        Raises:
            PostroomError: an answer that had begun could not be finished.
        """
        near = HttpConnection(h11.SERVER, reader, writer, conn.rate_limit.piece)
        rules = AllowList.parse(conn.spec.egress)

        async def handle(request: h11.Request) -> None:
            if request.method == b"CONNECT":
                await self._tunnel(conn, rules, near, request)
            else:
                await self._request(conn, rules, near, request)

        await HttpSession(conn, near, self._timeouts).run(handle)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────

    async def _request(
        self, conn: GatewayConnection, rules: AllowList, near: HttpConnection, request: h11.Request
    ) -> None:
        text = request.target.decode("ascii")
        shown = without_user(text)
        try:
            _check_form(request)
            target = target_of(request)
            shown = text.partition("?")[0]  # no user is in it, and a path may have an @
            self._check_literal(target.host, target.port)
            if not rules.covers(target):
                raise _not_allowed(target.url, str(target.origin))
        except PostroomError as error:
            self._deny(conn, RequestRecord(conn, request, shown), error)
            raise
        record = RequestRecord(conn, request, target.url)
        record.allowed()
        await self._forward(conn, near, request, target, record)

    async def _forward(
        self,
        conn: GatewayConnection,
        near: HttpConnection,
        request: h11.Request,
        target: Target,
        record: RequestRecord,
    ) -> None:
        tls = self._tls() if target.scheme == "https" else None
        reader, writer = await self._open(conn, target, tls, record)
        far = HttpConnection(h11.CLIENT, reader, writer)
        used = self._credentials.used(conn.spec, target)
        kept = _without_token(request, conn.spec.token_sha256)
        headers = onward(kept, target.authority, headers_of(used))
        query = f"?{target.query}" if target.query or request.target.endswith(b"?") else ""
        exchange = Exchange(near, far, self._timeouts)
        try:
            await exchange.recorded(record, request.method, (target.path + query).encode(), headers)
        finally:
            await self._refusals.answered(used, exchange.status)

    async def _open(
        self,
        conn: GatewayConnection,
        target: Target,
        tls: ssl.SSLContext | None,
        record: RequestRecord,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await connect(
                target.host,
                target.port,
                policy=self._policy_for(conn),
                tls=tls,
                timeout=self._timeouts.connect,
            )
        except AddressRefused as error:
            self._deny(conn, record, error)
            raise
        except PostroomError as error:
            record.answered(0, 0, error.message)
            raise

    # ── tunnels ──────────────────────────────────────────────────────────────────────────────────

    async def _tunnel(
        self, conn: GatewayConnection, rules: AllowList, near: HttpConnection, request: h11.Request
    ) -> None:
        conn.protocol = "tunnel"
        place = request.target.decode("ascii")
        record = RequestRecord(conn, request, without_user(place))
        try:
            host, port = split_authority(place, 0)
            self._check_literal(host, port)
            if not port or is_address(host):
                raise InvalidInput(
                    "a tunnel needs the name and the port of a host",
                    remedy="use $POSTROOM_EGRESS/https/<host> as the base URL",
                )
            if not rules.tunnels(host, port):
                raise _no_tunnel(rules, host, port)
        except PostroomError as error:
            self._deny(conn, record, error)
            raise
        record.allowed()
        target = Target("https", host, port)
        reader, writer = await self._open(conn, target, None, record)
        await Tunnel(near, reader, writer, self._timeouts).run(target.host, record)

    # ── checks ───────────────────────────────────────────────────────────────────────────────────

    def _policy_for(self, conn: GatewayConnection) -> OutboundPolicy:
        return replace(self._policy, resolve=self._lookups.of(conn.spec.uid))

    def _check_literal(self, host: str, port: int) -> None:
        if is_address(host):
            check_address(host, host, port, self._policy)

    def _deny(self, conn: GatewayConnection, record: RequestRecord, error: PostroomError) -> None:
        record.denied(error)
        if isinstance(error, AddressRefused):
            conn.offend(f"{error.message}; {error.remedy}")


def _check_form(request: h11.Request) -> None:
    if request.method == b"TRACE":  # the answer would show the credential to the worker
        raise Forbidden("TRACE is not passed on")
    if any(n == b"upgrade" and b"websocket" in v.lower() for n, v in request.headers):
        raise Forbidden("WebSocket is not passed on", remedy="use the client's HTTP mode")


def _not_allowed(url: str, rule: str) -> Forbidden:
    return Forbidden(
        f"this worker may not reach {url}",
        remedy=f'add "{rule}" to [overrides] egress in its template, and spawn it again',
    )


def _no_tunnel(rules: AllowList, host: str, port: int) -> Forbidden:
    place = Target("https", host, port)
    if rules.reaches("https", host, port):
        return Forbidden(
            f"of {host} only some paths are allowed, and a tunnel would hide the path",
            remedy=f"use $POSTROOM_EGRESS/https/{place.authority} as the base URL",
        )
    return _not_allowed(f"{host} port {port}", place.origin)


def _without_token(request: h11.Request, stored: str) -> Headers:
    """The headers without one that holds the worker's own token: no other host may see that."""
    return [
        (name, value)
        for name, value in request.headers
        if not matches(value.rpartition(b" ")[2].decode("latin-1"), stored)
    ]
