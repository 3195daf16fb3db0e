"""The choice of the next server to try, and the pause before it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroom_a2a.errors import InvalidInput, PostroomError, Unauthorized
from postroom_a2a.nats.options import ServerAddress, read_server
from postroom_a2a.retry import RetryPolicy

PAUSES = RetryPolicy(base=0.05, cap=3.0)
"""Seconds before an attempt; the first one too, so that the clients of one server do not all come at once."""

MAX_SERVERS = 256
"""Servers to remember of those that one server names."""

STEADY = 5.0
"""Seconds after which a session counts as more than an attempt."""

MAX_REFUSALS = 2
"""Times in a row that a server may refuse the credential before the pool gives it up."""


class _Entry:
    __slots__ = ("failures", "named", "refusals", "server")

    def __init__(self, server: ServerAddress, *, named: bool) -> None:
        self.server = server
        self.named = named
        self.failures = 0
        self.refusals = 0


class Pool:
    """The servers of one connection: the given ones, and the members of their cluster that they name.

    Args:
        insist: never give up a server that refuses the credential.
    """

    def __init__(self, servers: Sequence[ServerAddress], *, insist: bool = False) -> None:
        self._insist = insist
        self._entries = [_Entry(server, named=False) for server in servers]

    @property
    def servers(self) -> list[ServerAddress]:
        """All servers of the pool."""
        return [entry.server for entry in self._entries]

    def next(self) -> tuple[ServerAddress, float] | None:
        """The server that failed least, and the seconds to wait before; None if all servers were given up."""
        if not self._entries:
            return None
        entry = min(self._entries, key=lambda each: each.failures)
        return entry.server, PAUSES.delay(entry.failures + 1)

    def put_last(self, server: ServerAddress) -> None:
        """Have the others come before it, so that whoever leaves one server after the other sees all of them."""
        self._entries.sort(key=lambda entry: entry.server == server)

    def failed(self, server: ServerAddress, error: PostroomError, *, lived: float = 0.0) -> None:
        """Note that an attempt failed, or that its session ended after `lived` seconds."""
        for entry in self._entries:
            if entry.server == server:
                # Without a pause, a server that accepts connections and drops them would be asked all the time.
                entry.failures = 1 if lived > STEADY else entry.failures + 1
                entry.refusals = entry.refusals + 1 if isinstance(error, Unauthorized) else 0
                if entry.refusals >= MAX_REFUSALS and not self._insist:
                    self._entries.remove(entry)
                break

    def connected(self, server: ServerAddress) -> None:
        """Note that an attempt succeeded."""
        for entry in self._entries:
            if entry.server == server:
                entry.refusals = 0
            else:
                entry.failures = 0  # its trouble may be over when this server goes

    def learn(self, server: ServerAddress, info: dict[str, Any]) -> None:
        """Add the other servers of the cluster, which `server` names in its INFO."""
        urls = info.get("connect_urls")
        if not isinstance(urls, list):
            return
        named: list[ServerAddress] = []
        for url in urls[:MAX_SERVERS]:
            try:
                found = read_server(str(url))
            except InvalidInput:
                continue
            # TLS and login are those of the cluster, so what holds for one server holds for all.
            named.append(
                ServerAddress(
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
