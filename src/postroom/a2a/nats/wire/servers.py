"""Which server to try next, and when. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from postroom.a2a.nats.wire.options import Server, read_server
from postroom.errors import InvalidInput, PostroomError, Unauthorized

CAP = 2.0
"""Seconds: longest pause between two attempts, before jitter."""

MAX_SERVERS = 256
"""Servers that are remembered of those that servers name."""

MAX_REFUSALS = 2
"""Times in a row that a server may refuse who we are before it is given up."""


class _Entry:
    __slots__ = ("failures", "named", "refusals", "server")

    def __init__(self, server: Server, *, named: bool) -> None:
        self.server = server
        self.named = named
        self.failures = 0
        self.refusals = 0


class Pool:
    """The servers of one connection: those that it was given, and those that they name.

    Args:
        servers: that it was given.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self._entries = [_Entry(server, named=False) for server in servers]

    @property
    def places(self) -> str:
        """All of them, for texts."""
        return ", ".join(entry.server.place for entry in self._entries)

    def next(self) -> tuple[Server, float] | None:
        """The server that failed least, and after how many seconds; None if all refuse us."""
        if not self._entries:
            return None
        entry = min(self._entries, key=lambda each: each.failures)
        if not entry.failures:
            return entry.server, random.uniform(0, 0.05)  # noqa: S311 (spreads load, hides nothing)
        pause = min(CAP, 0.05 * 2 ** min(entry.failures, 10))
        return entry.server, pause * random.uniform(0.5, 1.5)  # noqa: S311

    def failed(self, server: Server, error: PostroomError) -> None:
        """An attempt failed, or its connection ended."""
        for entry in self._entries:
            if entry.server == server:
                entry.failures += 1
                entry.refusals = entry.refusals + 1 if isinstance(error, Unauthorized) else 0
                if entry.refusals >= MAX_REFUSALS:
                    self._entries.remove(entry)
                break

    def connected(self, server: Server) -> None:
        """An attempt succeeded; the server is asked last when it goes away."""
        for entry in self._entries:
            if entry.server == server:
                entry.failures = entry.refusals = 0
                self._entries.remove(entry)
                self._entries.append(entry)
                break

    def told(self, server: Server, info: dict[str, Any]) -> None:
        """`server` names the others of its cluster."""
        urls = info.get("connect_urls")
        if not isinstance(urls, list):
            return
        named: list[Server] = []
        for url in urls[:MAX_SERVERS]:
            try:
                found = read_server(str(url))
            except InvalidInput:
                continue
            # They are one cluster, so what holds for one holds for all.
            named.append(
                Server(
                    found.host, found.port, server.tls, server.user, server.password, server.token
                )
            )
        self._entries = [
            entry
            for entry in self._entries
            if not entry.named or entry.server in named or entry.server == server
        ]
        there = {(entry.server.host, entry.server.port) for entry in self._entries}
        self._entries += [
            _Entry(each, named=True) for each in named if (each.host, each.port) not in there
        ]
