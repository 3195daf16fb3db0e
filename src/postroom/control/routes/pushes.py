"""Push notifications: what became of them, sending one again, and what verifies them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from postroom.control.described import fails
from postroom.control.in_flight import acted_on
from postroom.control.parameters import After, Limit, TaskRef, next_page
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, NotFound
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope

PushRef = Annotated[str, Path(description="Its id, the `webhook-id` of its attempts.")]


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes()
    pushes = parts.pushes

    @routes.get("/tasks/{task}/pushes")
    @needs(Scope.READ)
    @fails(NotFound, Conflict)
    async def listing(
        task: TaskRef, me: Caller, after: After = 0, limit: Limit = 50
    ) -> answers.Pushes:
        """List the pushes of a task, the oldest change first.

        Those of the caller's own push notification configs; all, for who operates. `limit` counts changes: each has a
        push to every receiver.
        """
        found = await pushes.of_task(task, me, after=after, limit=limit)
        changes = sorted({view.row.seq for view in found})
        later = next_page(changes, limit, lambda seq: seq)
        return {"pushes": [view.as_json() for view in found], "next": later}

    @routes.post("/tasks/{task}/pushes/{push}/again")
    @needs(Scope.TASK)
    @fails(NotFound, Conflict)
    async def again(task: TaskRef, push: PushRef, me: Caller) -> shapes.Push:
        """Send a push again at once, whatever became of it."""
        view = await pushes.again(task, push, me)
        acted_on(task=view.config.task)
        return view.as_json()

    @routes.get("/webhooks/keys")
    @needs(Scope.TASK)
    async def keys(me: Caller) -> shapes.WebhookKeys:
        """Show what verifies that a push is of this post room.

        `secret` is the caller's alone, and signs what goes to its URLs.
        """
        key = pushes.key
        return {"secret": key.secret(me.uid), "public": key.public}

    return routes
