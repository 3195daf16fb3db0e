"""Webhooks: URLs that are told what happens to an agent."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from postroom.control.acts import by_owner
from postroom.control.bodies import WebhookBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import Limit
from postroom.control.parts import Parts
from postroom.directory.agents import resolve
from postroom.directory.grants import owns
from postroom.errors import Forbidden, NotFound, Refused, UnknownRecipient
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Principal, Scope
from postroom.store.database import Store
from postroom_a2a.text import one_line

WebhookRef = Annotated[str, Field(description="The id of the webhook.")]
DeliveryRef = Annotated[str, Field(description="Its id, the `webhook-id` of its attempts.")]


operations = Operations()


@operations.post(
    "/v1/webhooks",
    Scope.SEND,
    status=201,
    door=True,
    by_owner=True,
    fails=(NotFound, Refused, *STORING),
)
async def add(parts: Parts, body: WebhookBody, me: Principal) -> shapes.NewWebhook:
    """Have a URL told what happens to the caller, or to an agent that the caller owns.

    The secret that signs is in this answer and in no other. The webhook ends with the key that it is made with. For an
    agent that may not do it alone its owner is asked (202); one that was made so already is that one, and its secret
    is what its owner's `rotate` gives.
    """
    me.require(Scope.READ)
    owner = await _owner(parts, body.agent, me)
    parts.webhooks.check(body.url)
    given = {"url": body.url, "events": list(dict.fromkeys(body.events)), "agent": owner}
    words = f"tell {body.url} what happens to @{me.nick}: {', '.join(given['events'])}"
    await by_owner(parts, me, "webhooks.add", given, words)
    made = await parts.webhooks.add(me, owner, body.url, body.events)
    acted_on(about=made.row.id)
    return made.with_secret()


@operations.get("/v1/webhooks", Scope.READ)
async def list_(parts: Parts, me: Principal) -> answers.Webhooks:
    """List the webhooks of the caller and of the agents that it owns.

    All of them, for who operates.
    """
    found = await parts.webhooks.listed(me)
    return {"webhooks": [view.as_json() for view in found], "next": None}


@operations.post("/v1/webhooks/{webhook}/test", Scope.SEND, fails=(NotFound, Refused))
async def test(parts: Parts, webhook: WebhookRef, me: Principal) -> shapes.Attempt:
    """Send a delivery that tells of nothing, once.

    A disabled webhook that takes it is told again.
    """
    outcome = await parts.webhooks.test(webhook, me)
    acted_on(about=webhook)
    return {
        "delivered": outcome.delivered,
        "status": outcome.status,
        "reason": outcome.reason,
    }


@operations.get("/v1/webhooks/{webhook}/deliveries", Scope.READ, fails=(NotFound,))
async def deliveries(
    parts: Parts, webhook: WebhookRef, me: Principal, limit: Limit = 50
) -> answers.Deliveries:
    """List the last deliveries to a webhook.

    Those that wait come first, then those that were tried, the last first.
    """
    found = await parts.webhooks.deliveries(webhook, me, limit)
    return {"deliveries": [view.as_json() for view in found], "next": None}


@operations.post(
    "/v1/webhooks/{webhook}/deliveries/{delivery}/again", Scope.SEND, fails=(NotFound,)
)
async def again(
    parts: Parts, webhook: WebhookRef, delivery: DeliveryRef, me: Principal
) -> shapes.Delivery:
    """Send a delivery again at once, whatever became of it."""
    view = await parts.webhooks.again(webhook, delivery, me)
    acted_on(about=webhook)
    return view.as_json()


@operations.post("/v1/webhooks/{webhook}/rotate", Scope.SEND, fails=(NotFound,))
async def rotate(parts: Parts, webhook: WebhookRef, me: Principal) -> shapes.NewWebhook:
    """Give a webhook a new secret, which is in this answer and in no other.

    The former one signs, too, until `former_until`, so that a receiver has time to take the new one.
    """
    if not me.is_free:
        raise Forbidden(
            "the secret of a webhook is its owner's",
            remedy=f"its owner: postroom webhooks rotate {one_line(webhook, 40)}",
        )
    view = await parts.webhooks.rotate(webhook, me)
    acted_on(about=webhook)
    return view.with_secret()


@operations.delete("/v1/webhooks/{webhook}", Scope.SEND, status=204, fails=(NotFound,))
async def remove(parts: Parts, webhook: WebhookRef, me: Principal) -> None:
    """Remove a webhook, with what waits for it."""
    await parts.webhooks.remove(webhook, me)
    acted_on(about=webhook)


async def _owner(parts: Parts, ref: str, me: Principal) -> str:
    """The uid of the agent that a webhook is for; whether one exists that is not the caller's is not said."""

    def find(store: Store) -> str | None:
        try:
            uid = resolve(store, parts.directory.org, ref).uid
        except UnknownRecipient:
            return None
        return uid if uid == me.uid or owns(store, me.uid, uid) else None

    found = await parts.database.point(find) if ref else me.uid
    if found is None:
        raise NotFound("you own no such agent", remedy="postroom agents lists all")
    return found
