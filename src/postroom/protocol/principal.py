"""Who asks: the principal that every route and every request of an agent is answered for.

Who authenticates it is `control.principals`; services are given the principal and ask it what it may do and see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from postroom.errors import Forbidden


class Scope(StrEnum):
    """What a key may be used for (docs/security.md, Keys and scopes).

    `read`: one's own inbox, chats and tasks, the directory, cards, feeds, blobs that one may read.
    `send`: messages, posts, announcements, acknowledging, uploading blobs, webhooks.
    `task`: delegating, canceling and answering one's own tasks, taking and updating tasks given to oneself.
    `grant`: letting others in and taking that back, webhooks, keys of one's own, where a program does so by itself.
    `operate`: what is everybody's: workers, all mail and all tasks, dead letters, alerts, audit log, events.
    `admin`: keys, people, external agents, organisations, credentials, trust, retention, shutdown.

    What of the machine a worker may have goes by no scope: the operator's key decides (`workers.reach`).
    """

    READ = "read"
    SEND = "send"
    TASK = "task"
    GRANT = "grant"
    OPERATE = "operate"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)
"""The scopes of the operator."""

USUAL_SCOPES = frozenset({Scope.READ, Scope.SEND, Scope.TASK})
"""The scopes of people, external agents and workers, unless their key says otherwise."""

GUEST_SCOPES = frozenset({Scope.READ, Scope.TASK})
"""The most that a key may be used for in another organisation than its own."""

OPERATOR_KEY = "operator"
"""Id of the operator's key, which is no row: the state folder keeps it, and every organisation takes it."""

DOOR, KEY = "door", "key"
"""How a principal was authenticated: by a worker's own door and token, or by an API key."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated agent, and what it may do.

    Attributes:
        kind: `human`, `external`, `service` or `worker`.
        method: `key` or `door`.
        key_id: of the API key; "" for a worker.
        expires_at: when the key does, in seconds since the epoch; None for never.
        guest: it acts in another organisation than `org`; its nick is then its address, `nick.org`.
        stranger: it came by open registration: it sees whom a grant ties to it, and nobody else.
    """

    uid: str
    org: str
    nick: str
    kind: str
    scopes: frozenset[Scope]
    method: str
    key_id: str = ""
    expires_at: float | None = None
    guest: bool = False
    stranger: bool = False

    @property
    def by(self) -> str:
        """Whom a worker that this principal starts is judged for: `operator` for the operator's key, else the uid."""
        return OPERATOR_KEY if self.key_id == OPERATOR_KEY else self.uid

    @property
    def is_free(self) -> bool:
        """Whether it does by itself what an agent's owner is asked for: people, and who has `grant` or administers."""
        return self.kind == "human" or not self.scopes.isdisjoint((Scope.GRANT, Scope.ADMIN))

    def allows(self, scope: Scope) -> bool:
        """Whether this principal may do what needs `scope`."""
        return scope in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise Forbidden without `scope`."""
        if scope not in self.scopes:
            raise Forbidden(
                f"this needs the scope {scope.value!r}, which @{self.nick} has not here",
                remedy="ask the operator for a key with that scope",
            )

    @property
    def only(self) -> str:
        """The uid whose things alone this principal sees; "" for everybody's."""
        return "" if Scope.OPERATE in self.scopes else self.uid

    def visiting(self) -> Principal:
        """The same caller in another organisation."""
        nick, scopes = f"{self.nick}.{self.org}", self.scopes & GUEST_SCOPES
        return replace(self, nick=nick, scopes=scopes, guest=True)

    def sees(self, *parties: str) -> bool:
        """Whether this principal sees what is between `parties` (uids); otherwise it must look absent."""
        return Scope.OPERATE in self.scopes or self.uid in parties
