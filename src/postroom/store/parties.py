"""Names of the agents in messages and tasks."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.protocol import shapes


@dataclass(frozen=True, slots=True)
class Party:
    """The sender, recipient, requester or worker; `kind` is `unknown` where the directory has no such agent."""

    uid: str
    nick: str
    kind: str

    def as_json(self) -> shapes.Party:
        """Shape of the API."""
        return {"uid": self.uid, "nick": self.nick, "kind": self.kind}
