"""Webhooks: the URLs that agents are told at, and up to where in the log they have their deliveries (`store.pushes`).

All webhooks of an organisation share one cursor for each stream: what is stored past it is looked at once, for all.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields

from sqlalchemy import bindparam, delete, func, select, update

from postroom.store.schema import pushes, webhook_cursors, webhooks
from postroom.store.session import Session, among, prepared, upsert, values_of

PREFIX = "wh_"
"""How the id of a webhook begins; no config's key does."""


@dataclass(frozen=True, slots=True)
class HookRow:
    """A webhook.

    Attributes:
        owner: uid of whom it tells of.
        api_key: id of the API key that it was made with.
        events: names, with spaces between.
        secret: signs what goes there, sealed (`identity.sealing`).
        former: the one before it, which signs, too, until `former_until`.
        disabled: why nothing goes there, "" while it does.
    """

    id: str
    owner: str
    api_key: str
    url: str
    events: str
    secret: str = field(repr=False)
    made_at: float
    former: str = field(default="", repr=False)
    former_until: float | None = None
    disabled: str = ""


_HOOK = [webhooks.c[each.name] for each in fields(HookRow)]
_PUT = upsert(webhooks, ["id"], ["secret", "former", "former_until", "disabled"])
_BY_ID = prepared(select(*_HOOK).where(webhooks.c.id == bindparam("named")))
_ALL = prepared(select(*_HOOK).order_by(webhooks.c.made_at, webhooks.c.id))
_ACTIVE = prepared(select(*_HOOK).where(webhooks.c.disabled == "").order_by(webhooks.c.id))
_COUNT = prepared(select(func.count()).where(webhooks.c.owner == bindparam("whose")))
_DISABLE = prepared(
    update(webhooks).where(webhooks.c.id == bindparam("named")).values(disabled=bindparam("why"))
)
_DELETE = prepared(delete(webhooks).where(webhooks.c.id == bindparam("named")))
_FORGET = prepared(delete(pushes).where(among(pushes.c.hook, "hooks")))
_OLD = prepared(
    delete(pushes).where(
        pushes.c.hook >= PREFIX,
        pushes.c.hook < PREFIX + "~",
        pushes.c.state != "pending",
        pushes.c.at < bindparam("before"),
    )
)
_CURSOR = prepared(
    select(webhook_cursors.c.seq).where(webhook_cursors.c.stream == bindparam("named"))
)
_MOVE = upsert(webhook_cursors, ["stream"], ["seq"])


class WebhookStore:
    """The webhooks of an organisation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, row: HookRow) -> None:
        """Store a webhook, or of one that is there its secrets and whether it is disabled."""
        self._session.run(_PUT, values_of(row))

    def get(self, webhook: str) -> HookRow | None:
        """The webhook with that id."""
        return self._session.first(HookRow, _BY_ID, named=webhook)

    def all(self) -> list[HookRow]:
        """Every webhook, the oldest first."""
        return self._session.all(HookRow, _ALL)

    def active(self) -> list[HookRow]:
        """Those that are told."""
        return self._session.all(HookRow, _ACTIVE)

    def count(self, owner: str) -> int:
        """How many an agent has."""
        return self._session.scalar(_COUNT, whose=owner) or 0

    def disable(self, webhook: str, reason: str) -> None:
        """Tell it nothing more, for that reason; "" to tell it again."""
        self._session.run(_DISABLE, {"named": webhook, "why": reason})

    def remove(self, webhook: str, lanes: Collection[str]) -> None:
        """Forget a webhook, and the deliveries in its lanes."""
        self._session.run(_FORGET, {"hooks": list(lanes)})
        self._session.run(_DELETE, {"named": webhook})

    def forget(self, before: float) -> int:
        """Forget the deliveries that have ended before an instant; returns how many."""
        return self._session.run(_OLD, {"before": before})

    def cursor(self, stream: str) -> int:
        """Up to where in a stream all deliveries are made, 0 before the first webhook."""
        return self._session.scalar(_CURSOR, named=stream) or 0

    def move(self, stream: str, seq: int) -> None:
        """Note that they are made up to `seq`."""
        self._session.run(_MOVE, {"stream": stream, "seq": seq})
