"""The issued bus credentials. A revocation names keys, so a key is remembered until its last credential expires."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select, update

from postroom.store.schema import credentials


def add_credential(connection: Connection, user_key: str, uid: str, expires_at: float) -> None:
    """Record a credential of agent `uid` before it is issued; epoch seconds."""
    connection.execute(
        insert(credentials).values(user_key=user_key, uid=uid, expires_at=expires_at)
    )


def prolong(connection: Connection, user_key: str, uid: str, expires_at: float) -> bool:
    """Record a further credential of the same key; False if the agent has no such key."""
    changed = (
        update(credentials)
        .where(credentials.c.user_key == user_key, credentials.c.uid == uid)
        .values(expires_at=expires_at)
    )
    return connection.execute(changed).rowcount == 1


def keys_out(connection: Connection, uid: str = "", *, now: float) -> dict[str, float]:
    """Key to the instant at which its last credential expires, for one agent or for all.

    Keys without a valid credential are forgotten.
    """
    connection.execute(delete(credentials).where(credentials.c.expires_at < now))
    found = select(credentials.c.user_key, credentials.c.expires_at)
    if uid:
        found = found.where(credentials.c.uid == uid)
    return {row.user_key: row.expires_at for row in connection.execute(found)}


def forget_keys(connection: Connection, keys: Collection[str]) -> None:
    """Forget these keys. The caller keeps the revocation elsewhere."""
    connection.execute(delete(credentials).where(credentials.c.user_key.in_(keys)))
