"""Keys, as rows: of the API, of the bus, and what the operator has opened of the machine to an organisation's others.

Of an API key there is its digest, whose it is, what it may be used for, and until when. A bus credential is revoked by
its key, so that is remembered until its last credential expires.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, delete, func, insert, select, update

from postroom.store.schema import EVERYWHERE, SET_ASIDE, agents, api_keys, credentials, openings
from postroom.store.session import Session, prepared

FOLDER, WALL = "folder", "wall"
"""Kinds of openings."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, without anything that could be used in its place.

    Attributes:
        uid: whose it is.
        scopes: names, separated by spaces.
        used_at: its last use, to the minute; None before the first.
        made_by: uid of who made it.
    """

    id: str
    uid: str
    name: str
    scopes: str
    created_at: float
    expires_at: float | None = None
    used_at: float | None = None
    revoked_at: float | None = None
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class Bearer:
    """A key and its agent, as a caller shows them."""

    id: str
    scopes: str
    expires_at: float | None
    revoked_at: float | None
    uid: str
    org: str
    nick: str
    kind: str
    retired_at: float | None
    joined: str


_COLUMNS = [api_keys.c[field.name] for field in fields(ApiKey)]
_OF_KEY = ("id", "scopes", "expires_at", "revoked_at")
_BEARER = prepared(
    select(
        *(api_keys.c[name] for name in _OF_KEY),
        *(agents.c[field.name] for field in fields(Bearer) if field.name not in _OF_KEY),
    )
    .join(agents, agents.c.uid == api_keys.c.uid)
    .where(api_keys.c.sha256 == bindparam("sha256"))
)
_keys, _agents = EVERYWHERE.api_keys, EVERYWHERE.agents
_GUEST = (
    select(
        *(_keys.c[name] for name in _OF_KEY),
        *(_agents.c[field.name] for field in fields(Bearer) if field.name not in _OF_KEY),
    )
    .join(_agents, _agents.c.uid == _keys.c.uid)
    .where(_agents.c.org.not_like(f"%{SET_ASIDE}%"))
)
_GUEST_BY_DIGEST = prepared(_GUEST.where(_keys.c.sha256 == bindparam("sha256")))
_GUEST_BY_ID = prepared(_GUEST.where(_keys.c.id == bindparam("named")))
_ANYWHERE = prepared(
    select(EVERYWHERE.api_keys.c.org).where(
        EVERYWHERE.api_keys.c.sha256 == bindparam("sha256"),
        EVERYWHERE.api_keys.c.revoked_at.is_(None),
    )
)
_BY_ID = prepared(select(*_COLUMNS).where(api_keys.c.id == bindparam("id")))
_VALID = prepared(
    select(func.count())
    .select_from(api_keys)
    .where(
        api_keys.c.uid == bindparam("uid"),
        api_keys.c.revoked_at.is_(None),
        (api_keys.c.expires_at.is_(None)) | (api_keys.c.expires_at > bindparam("now")),
    )
)


class KeyStore:
    """The API keys of people and external agents."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, key: ApiKey, sha256: str) -> None:
        """Store a new key with the digest of its text, which is shown once and kept nowhere."""
        row = {field.name: getattr(key, field.name) for field in fields(ApiKey)}
        self._session.run(insert(api_keys).values(sha256=sha256, **row))

    def bearer(self, sha256: str) -> Bearer | None:
        """The key with that digest and its agent, whatever became of them."""
        return self._session.first(Bearer, _BEARER, sha256=sha256)

    def guest(self, sha256: str = "", *, key_id: str = "") -> Bearer | None:
        """The key of any organisation with that digest, or that id, and its agent, whatever became of them."""
        if sha256:
            return self._session.first(Bearer, _GUEST_BY_DIGEST, sha256=sha256)
        return self._session.first(Bearer, _GUEST_BY_ID, named=key_id)

    def org_of(self, sha256: str) -> str:
        """The organisation of the installation whose key has that digest, "" where it is none's, or revoked."""
        org = self._session.scalar(_ANYWHERE, sha256=sha256) or ""
        return "" if SET_ASIDE in org else org

    def get(self, key_id: str) -> ApiKey | None:
        """The key with that id, valid or not."""
        return self._session.first(ApiKey, _BY_ID, id=key_id)

    def listed(self, uid: str = "", *, ended: bool = False) -> list[ApiKey]:
        """The keys of one agent, or of all, the oldest first; with `ended` the revoked ones too."""
        found = select(*_COLUMNS).order_by(api_keys.c.created_at, api_keys.c.id)
        if uid:
            found = found.where(api_keys.c.uid == uid)
        if not ended:
            found = found.where(api_keys.c.revoked_at.is_(None))
        return self._session.all(ApiKey, found)

    def count(self, uid: str, now: float) -> int:
        """The number of keys of an agent that can be used."""
        return self._session.scalar(_VALID, uid=uid, now=now) or 0

    def revoke(self, key_id: str, at: float) -> bool:
        """Revoke a key at once; False if it was already, or does not exist."""
        revoked = (
            update(api_keys)
            .where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
            .values(revoked_at=at)
        )
        return self._session.run(revoked) == 1

    def revoke_all(self, uid: str, at: float) -> Collection[str]:
        """Revoke all keys of an agent; returns their ids."""
        found = [key.id for key in self.listed(uid)]
        self._session.run(
            update(api_keys)
            .where(api_keys.c.uid == uid, api_keys.c.revoked_at.is_(None))
            .values(revoked_at=at)
        )
        return found

    def forget_ended(self, uid: str, now: float, keep: int) -> None:
        """Forget the keys of an agent that cannot be used any more, but for the newest `keep` of them."""
        over = api_keys.c.revoked_at.is_not(None) | (api_keys.c.expires_at <= now)
        ended = select(api_keys.c.id).where(api_keys.c.uid == uid, over)
        newest = ended.order_by(api_keys.c.created_at.desc(), api_keys.c.id).limit(keep)
        self._session.run(
            delete(api_keys).where(api_keys.c.uid == uid, over, api_keys.c.id.not_in(newest))
        )

    def used(self, times: Mapping[str, float]) -> None:
        """Note when keys were used last."""
        for key_id, at in times.items():
            noted = update(api_keys).where(api_keys.c.id == key_id).values(used_at=at)
            self._session.run(noted)


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


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening.

    Attributes:
        kind: `folder` or `wall`.
        name: the real name of the folder, or the level of the wall.
        mode: of a folder: `copy` to be read, `direct` to be written itself, too; "" for a wall.
        opened_at: epoch seconds.
    """

    kind: str
    name: str
    mode: str
    opened_at: float


_OPENING = (openings.c.kind, openings.c.name, openings.c.mode, openings.c.opened_at)
_ALL = prepared(select(*_OPENING).order_by(openings.c.kind, openings.c.name))


class OpeningStore:
    """The openings of an organisation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def openings(self) -> list[Opening]:
        """All of them, in the order of their names."""
        return self._session.all(Opening, _ALL)

    def open(self, opening: Opening) -> None:
        """Store it, in place of one of the same kind and name."""
        self.close(opening.kind, opening.name)
        self._session.run(
            insert(openings).values(
                kind=opening.kind,
                name=opening.name,
                mode=opening.mode,
                opened_at=opening.opened_at,
            )
        )

    def close(self, kind: str, name: str) -> bool:
        """Forget it; False if there is none."""
        return (
            self._session.run(
                delete(openings).where(openings.c.kind == kind, openings.c.name == name)
            )
            == 1
        )
