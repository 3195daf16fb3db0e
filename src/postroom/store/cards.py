"""The Agent Cards of agents that Postroom does not run, as they were given."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select, update

from postroom.store.schema import agent_cards
from postroom.store.session import Session, prepared, upsert

_ALL = prepared(select(agent_cards.c.uid, agent_cards.c.card))
_SET = upsert(agent_cards, ["uid"], ["card", "updated_at"])
_REMOTES = prepared(
    select(agent_cards.c.uid, agent_cards.c.remote).where(agent_cards.c.remote != "")
)
_SET_REMOTE = prepared(update(agent_cards).where(agent_cards.c.uid == bindparam("who")))
_REMOVE = prepared(delete(agent_cards).where(agent_cards.c.uid == bindparam("who")))


class CardStore:
    """Cards by the uid of their agent."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all_cards(self) -> dict[str, str]:
        """Every card, as JSON text."""
        return dict(self._session.rows(_ALL))

    def set_card(self, uid: str, card: str, at: float) -> None:
        """Store the card of an agent in place of the one that it had."""
        self._session.run(_SET, {"uid": uid, "card": card, "updated_at": at})

    def remove_card(self, uid: str) -> None:
        """Forget the card of an agent."""
        self._session.run(_REMOVE, {"who": uid})

    def remotes(self) -> dict[str, str]:
        """Where and how agents of other people are called, as JSON text."""
        return dict(self._session.rows(_REMOTES))

    def set_remote(self, uid: str, remote: str) -> None:
        """Store it, for an agent that has a card."""
        self._session.run(_SET_REMOTE, {"who": uid, "remote": remote})
