"""The issued bus credentials. A revocation names keys, so a key is remembered until its last credential expires."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, insert, select, update

from postroom.store.schema import credentials
from postroom.store.session import Session


class CredentialStore:
    """The keys with a valid bus credential."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_credential(self, user_key: str, uid: str, expires_at: float) -> None:
        """Record a credential of agent `uid` before it is issued; epoch seconds."""
        self._session.run(
            insert(credentials).values(user_key=user_key, uid=uid, expires_at=expires_at)
        )

    def prolong(self, user_key: str, uid: str, expires_at: float) -> bool:
        """Record a further credential of the same key; False if the agent has no such key."""
        changed = (
            update(credentials)
            .where(credentials.c.user_key == user_key, credentials.c.uid == uid)
            .values(expires_at=expires_at)
        )
        return self._session.run(changed) == 1

    def keys_out(self, uid: str = "", *, now: float) -> dict[str, float]:
        """Key to the instant at which its last credential expires, for one agent or for all.

        Keys without a valid credential are forgotten.
        """
        self._session.run(delete(credentials).where(credentials.c.expires_at < now))
        found = select(credentials.c.user_key, credentials.c.expires_at)
        if uid:
            found = found.where(credentials.c.uid == uid)
        return dict(self._session.rows(found))

    def forget_keys(self, keys: Collection[str]) -> None:
        """Forget these keys. The caller keeps the revocation elsewhere."""
        self._session.run(delete(credentials).where(credentials.c.user_key.in_(keys)))
