"""The webhooks of an organisation, for who has them; and whether the secrets of receivers open."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from postroom.directory.grants import owns
from postroom.errors import InvalidInput, NotFound, Refused
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.limits import MAX_WEBHOOKS
from postroom.protocol.principal import Principal
from postroom.protocol.webhooks import TEST, HookEvent
from postroom.push import hooks
from postroom.push.changes import opened_of, place
from postroom.push.pusher import Pusher, stopped_of
from postroom.push.receivers import SECRET_LOST, Receiver, lanes_of
from postroom.store.agents import Party
from postroom.store.database import Database, Store
from postroom.store.pushes import PENDING, ConfigRow, PushRow
from postroom.store.webhooks import PREFIX, HookRow
from postroom.webhooks.sender import Outcome
from postroom.webhooks.signing import new_secret
from postroom_a2a.times import format_time

LOST = "secrets-lost"
"""Kind of the alert about secrets that the present key does not open."""

BOTH_SIGN = 24 * 3600.0
"""Seconds after a rotation in which the former secret signs, too."""


@dataclass(frozen=True, slots=True)
class HookView:
    """A webhook as its owner sees it; `secret` is "" but in the answer that makes one."""

    row: HookRow
    owner: Party
    fault: str
    pending: int
    secret: str = ""

    def as_json(self) -> shapes.Webhook:
        """Shape of the API."""
        row = self.row
        return {
            "id": row.id,
            "owner": self.owner.as_json(),
            "url": row.url,
            "events": row.events.split(),
            "state": "disabled" if row.disabled else "lost" if self.fault else "active",
            "reason": row.disabled or self.fault,
            "pending": self.pending,
            "created_at": format_time(row.made_at),
            "former_until": None if row.former_until is None else format_time(row.former_until),
        }

    def with_secret(self) -> shapes.NewWebhook:
        """As `as_json`, in the one answer that has the secret."""
        return {**self.as_json(), "secret": self.secret}


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery as the owner of its webhook sees it."""

    row: PushRow
    event: str

    def as_json(self) -> shapes.Delivery:
        """Shape of the API."""
        row = self.row
        webhook, _, _ = row.hook.partition("/")
        return {
            "id": row.id,
            "webhook": webhook,
            "event": self.event,
            "about": row.about,
            "state": row.state,
            "attempts": row.attempts,
            "status": row.status,
            "reason": row.reason,
            "tried_at": None if row.at is None else format_time(row.at),
            "next_at": None if row.next_at is None else format_time(row.next_at),
        }


class WebhookService:
    """The webhooks of an organisation, for who has them; who operates sees everybody's, and no secret."""

    def __init__(
        self,
        database: Database,
        pusher: Pusher,
        alert: RaiseAlert,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._pusher = pusher
        self._alert = alert
        self._clock = clock
        self._tested: set[str] = set()

    async def open(self) -> None:
        """Seal what an earlier version has stored as it was, and say which secrets are lost."""
        sealer = self._pusher.sealer

        def seal(store: Store) -> int:
            found = store.pushes.not_sealed()
            for config in found:
                token = sealer.seal(config.token, place(config.key, "token"))
                credentials = sealer.seal(config.credentials, place(config.key, "credentials"))
                store.pushes.put(replace(config, token=token, credentials=credentials, sealed=True))
            return len(found)

        while await self._database.write(seal, accounts=False):
            pass
        await self._look_for_lost()

    async def add(self, me: Principal, owner: str, url: str, events: list[HookEvent]) -> HookView:
        """A new webhook of the agent `owner`; the view has its secret, and no other answer.

        Raises:
            InvalidInput: nothing ever goes to that URL.
            Refused: the owner has too many.
        """
        self.check(url)
        secret, webhook = new_secret(), PREFIX + secrets.token_hex(8)
        row = HookRow(
            id=webhook,
            owner=owner,
            api_key=me.key_id,
            url=url,
            events=" ".join(dict.fromkeys(event.value for event in events)),
            secret=self._pusher.sealer.seal(secret, hooks.place(webhook)),
            made_at=self._clock(),
        )

        def add(store: Store) -> HookView:
            # What an agent's owner has allowed may be done again after a crash.
            same = (each for each in store.webhooks.all() if not row.api_key and _alike(each, row))
            if (known := next(same, None)) is not None:
                return self._view(store, known)
            if store.webhooks.count(owner) >= MAX_WEBHOOKS:
                raise Refused(
                    f"an agent has at most {MAX_WEBHOOKS} webhooks",
                    remedy="postroom webhooks remove ID",
                )
            # It is told of what comes from now on; those that are there, also of what has just come.
            while hooks.take(store, row.made_at).more:
                pass
            hooks.begin(store)
            store.webhooks.put(row)
            return replace(self._view(store, row), secret=secret)

        view = await self._database.write(add, accounts=False)
        self._pusher.look()
        return view

    def check(self, url: str) -> None:
        """Raise InvalidInput for a URL to which nothing ever goes."""
        try:
            self._pusher.sender.check(url)
        except InvalidInput as error:
            raise InvalidInput(f"'url': {error.message}", remedy=error.remedy) from error

    async def listed(self, me: Principal) -> list[HookView]:
        """The webhooks that `me` sees, the oldest first."""

        def find(store: Store) -> list[HookView]:
            return [
                self._view(store, row) for row in store.webhooks.all() if self._sees(store, me, row)
            ]

        return await self._database.read(find)

    async def test(self, webhook: str, me: Principal) -> Outcome:
        """Send a delivery that tells of nothing, at once and once. A disabled webhook that takes it is told again.

        Raises:
            NotFound: `me` has no such webhook.
            Refused: its secret is lost, its key or owner has gone, or a test of its owner's is under way.
        """
        now, pusher = self._clock(), self._pusher
        row, stopped = await self._database.read(
            lambda store: (
                (found := self._find(store, webhook, me)),
                stopped_of(store, Receiver.in_stream(found, ""), now),
            )
        )
        name = f"test_{secrets.token_hex(16)}"
        outgoing = hooks.signed(
            row, name, TEST, {"webhook": row.id}, pusher.key, pusher.sealer, now
        )
        if stopped or outgoing.fault:
            remedy = f"postroom webhooks rotate {row.id}" if not stopped else "add another webhook"
            raise Refused(stopped or outgoing.fault, remedy=remedy)
        if row.owner in self._tested:  # else it would be a way to flood whom one likes
            raise Refused("a test is under way", remedy="try again in a moment")
        self._tested.add(row.owner)
        try:
            outcome = await pusher.sender.post(row.url, outgoing.headers, outgoing.body)
        finally:
            self._tested.discard(row.owner)
        if outcome.delivered and row.disabled:
            await self._enable(row)
        return outcome

    async def _enable(self, row: HookRow) -> None:
        def enable(store: Store) -> None:
            if not store.webhooks.active():
                hooks.begin(store)
            store.webhooks.disable(row.id, "")

        await self._database.write(enable, accounts=False)
        self._pusher.look()
        await self._pusher.recovered(row.owner, row.id)

    async def deliveries(self, webhook: str, me: Principal, limit: int) -> list[DeliveryView]:
        """The last deliveries to a webhook: those that wait first, then those that were tried, the last first.

        Raises:
            NotFound: `me` has no such webhook.
        """

        def find(store: Store) -> list[DeliveryView]:
            row = self._find(store, webhook, me)
            found = [push for lane in lanes_of(row.id) for push in store.pushes.newest(lane, limit)]
            found.sort(key=lambda push: (push.state != PENDING, -(push.at or 0.0)))
            return [DeliveryView(push, hooks.event_of(store, push)) for push in found[:limit]]

        return await self._database.read(find)

    async def again(self, webhook: str, delivery: str, me: Principal) -> DeliveryView:
        """Send a delivery again at once, whatever became of it.

        Raises:
            NotFound: `me` has no such webhook, or that no such delivery.
        """

        def again(store: Store) -> tuple[DeliveryView, Receiver]:
            row = self._find(store, webhook, me)
            found = store.pushes.push(delivery)
            if found is None or found.hook not in lanes_of(row.id):
                raise NotFound(
                    "the webhook has no such delivery",
                    remedy=f"postroom webhooks deliveries {row.id}",
                )
            store.pushes.again(delivery, self._clock())
            found = store.pushes.push(delivery) or found
            receiver = Receiver.in_stream(row, found.hook.partition("/")[2])
            return DeliveryView(found, hooks.event_of(store, found)), receiver

        view, receiver = await self._database.write(again, accounts=False)
        self._pusher.wake(receiver)
        return view

    async def rotate(self, webhook: str, me: Principal) -> HookView:
        """Give a webhook a new secret, which is in this view alone; the former one signs, too, for a day.

        Raises:
            NotFound: `me` has no such webhook.
        """
        secret, now, sealer = new_secret(), self._clock(), self._pusher.sealer

        def rotate(store: Store) -> HookView:
            row = self._find(store, webhook, me)
            known = bool(hooks.secrets_of(row, sealer, now))
            row = replace(
                row,
                secret=sealer.seal(secret, hooks.place(row.id)),
                former=row.secret if known else "",
                former_until=now + BOTH_SIGN if known else None,
            )
            store.webhooks.put(row)
            return replace(self._view(store, row), secret=secret)

        view = await self._database.write(rotate, accounts=False)
        await self._look_for_lost()
        return view

    async def remove(self, webhook: str, me: Principal) -> None:
        """Remove a webhook with its deliveries.

        Raises:
            NotFound: `me` has no such webhook.
        """

        def remove(store: Store) -> HookRow:
            row = self._find(store, webhook, me)
            store.webhooks.remove(row.id, lanes_of(row.id))
            return row

        row = await self._database.write(remove, accounts=False)
        self._pusher.look()
        await self._pusher.recovered(row.owner, row.id)
        await self._look_for_lost()

    # ── who sees what ───────────────────────────────────────────────────────────────────────────────────

    def _find(self, store: Store, webhook: str, me: Principal) -> HookRow:
        row = store.webhooks.get(webhook)
        if row is None or not self._sees(store, me, row):
            raise NotFound("there is no such webhook", remedy="postroom webhooks list")
        return row

    def _sees(self, store: Store, me: Principal, row: HookRow) -> bool:
        """Whether it is one of `me`, or of an agent that `me` owns."""
        return me.sees(row.owner) or owns(store, me.uid, row.owner)

    def _view(self, store: Store, row: HookRow) -> HookView:
        known = store.agents.parties([row.owner])
        lost = not hooks.secrets_of(row, self._pusher.sealer, self._clock())
        return HookView(
            row,
            known.get(row.owner) or Party(row.owner, "", "unknown"),
            f"{SECRET_LOST}: give it a new one" if lost else "",
            sum(store.pushes.count_pending(lane) for lane in lanes_of(row.id)),
        )

    # ── secrets at rest ─────────────────────────────────────────────────────────────────────────────────

    async def _look_for_lost(self) -> None:
        """Raise the alert about secrets that do not open, or end it."""
        lost, raised = await self._database.read(self._lost)
        if lost:
            await self._alert(Alert(LOST, lost))
        elif raised:
            await self._alert(Alert(LOST, ""))

    def _lost(self, store: Store) -> tuple[str, bool]:
        sealer, now = self._pusher.sealer, self._clock()
        named = [row.id for row in store.webhooks.all() if not hooks.secrets_of(row, sealer, now)]
        configs: list[ConfigRow] = [
            config for config in store.pushes.with_secrets() if opened_of(config, sealer) is None
        ]
        said = []
        if named:
            said.append(
                f"new secrets for {len(named)} webhooks (postroom webhooks rotate {named[0]})"
            )
        if configs:
            said.append(f"{len(configs)} push notification configs anew, each by who made it")
        what = f"secrets are lost with the key that they were sealed under: {' and '.join(said)}"
        return what if said else "", store.alerts.is_raised(LOST, "")


def _alike(one: HookRow, other: HookRow) -> bool:
    """Whether two webhooks tell the same, the same way."""
    return all(
        getattr(one, name) == getattr(other, name) for name in ("owner", "api_key", "url", "events")
    )
