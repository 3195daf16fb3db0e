"""Which bus credentials are out: a revocation names keys, so the keys are remembered until nothing of them is valid."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select, update

from postroom.store.schema import credentials


def add_credential(connection: Connection, user_key: str, uid: str, expires_at: float) -> None:
    """A credential of agent `uid` is about to go out; epoch seconds."""
    connection.execute(
        insert(credentials).values(user_key=user_key, uid=uid, expires_at=expires_at)
    )


def prolong(connection: Connection, user_key: str, uid: str, expires_at: float) -> bool:
    """A credential of the same key is about to go out; False if no such key of the agent is out."""
    changed = (
        update(credentials)
        .where(credentials.c.user_key == user_key, credentials.c.uid == uid)
        .values(expires_at=expires_at)
    )
    return connection.execute(changed).rowcount == 1


def keys_out(connection: Connection, uid: str = "", *, now: float) -> dict[str, float]:
    """Key to epoch second at which its last credential expires, of one agent or of all.

    Keys of which nothing is valid any more are forgotten.
    """
    connection.execute(delete(credentials).where(credentials.c.expires_at < now))
    found = select(credentials.c.user_key, credentials.c.expires_at)
    if uid:
        found = found.where(credentials.c.uid == uid)
    return {row.user_key: row.expires_at for row in connection.execute(found)}


def forget_keys(connection: Connection, keys: Collection[str]) -> None:
    """These are revoked; that is kept elsewhere."""
    connection.execute(delete(credentials).where(credentials.c.user_key.in_(keys)))
