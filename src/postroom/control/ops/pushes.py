"""Push notifications: what became of them, sending one again, and what verifies them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from postroom.control.in_flight import acted_on
from postroom.control.ops.table import Operations
from postroom.control.parameters import After, Limit, TaskRef, next_page
from postroom.control.parts import Parts
from postroom.errors import Conflict, NotFound
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Principal, Scope

PushRef = Annotated[str, Field(description="Its id, the `webhook-id` of its attempts.")]


operations = Operations()


@operations.get(
    "/v1/tasks/{task}/pushes", Scope.READ, fails=(NotFound, Conflict), crosses=True, strangers=True
)
async def list_(
    parts: Parts, task: TaskRef, me: Principal, after: After = 0, limit: Limit = 50
) -> answers.Pushes:
    """List the pushes of a task, the oldest change first.

    Those of the caller's own push notification configs; all, for who operates. `limit` counts changes: each has a
    push to every receiver.
    """
    found = await parts.pushes.of_task(task, me, after=after, limit=limit)
    changes = sorted({view.row.seq for view in found})
    later = next_page(changes, limit, lambda seq: seq)
    return {"pushes": [view.as_json() for view in found], "next": later}


@operations.post(
    "/v1/tasks/{task}/pushes/{push}/again",
    Scope.TASK,
    fails=(NotFound, Conflict),
    crosses=True,
    strangers=True,
)
async def again(parts: Parts, task: TaskRef, push: PushRef, me: Principal) -> shapes.Push:
    """Send a push again at once, whatever became of it."""
    view = await parts.pushes.again(task, push, me)
    acted_on(task=view.config.task)
    return view.as_json()


@operations.get("/v1/webhooks/keys", Scope.TASK, strangers=True)
async def keys(parts: Parts, me: Principal) -> shapes.WebhookKeys:
    """Show what verifies that a push is of this post room.

    `secret` is the caller's alone, and signs what goes to its URLs.
    """
    key = parts.pushes.key
    return {"secret": key.secret(me.uid), "public": key.public}
