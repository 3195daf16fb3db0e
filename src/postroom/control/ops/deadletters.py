"""Dead letters: list, show, requeue, drop."""

from __future__ import annotations

from postroom.control.in_flight import acted_on, came_by
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import Before, LetterRef, Limit, next_page
from postroom.control.parts import Parts
from postroom.errors import Conflict, NotFound
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Principal, Scope

operations = Operations()


@operations.get("/v1/deadletters", Scope.READ, strangers=True)
async def list_(
    parts: Parts, me: Principal, limit: Limit = 50, before: Before = 0
) -> answers.Deadletters:
    """List the messages that could not be delivered, the newest first."""
    found = await parts.deadletters.all(limit, before, only=me.only)
    older = next_page(found, limit, lambda letter: letter.id)
    return {"deadletters": [letter.as_json() for letter in found], "next": older}


@operations.get("/v1/deadletters/{letter}", Scope.READ, fails=(NotFound, Conflict), strangers=True)
async def show(parts: Parts, letter: LetterRef, me: Principal) -> shapes.Dead:
    """Show a dead letter."""
    return (await parts.deadletters.get(await parts.deadletters.find(letter, me.only))).as_json()


@operations.post(
    "/v1/deadletters/{letter}/requeue",
    Scope.OPERATE,
    status=201,
    fails=(NotFound, Conflict, *STORING),
)
async def requeue(parts: Parts, letter: LetterRef, me: Principal) -> answers.Requeued:
    """Send a dead letter again as a new message.

    The old one stays dead and is linked to it. A letter that stands for a task has the task asked for again.
    """
    number = await parts.deadletters.find(letter)
    dead = await parts.deadletters.get(number)
    if not dead.task:
        return {"id": await parts.deadletters.requeue(number)}
    view = await parts.retries.retry(dead.task, me, door=came_by())
    acted_on(task=view.id, message=view.request)
    return {"id": view.request}


@operations.delete(
    "/v1/deadletters/{letter}", Scope.OPERATE, status=204, fails=(NotFound, Conflict)
)
async def drop(parts: Parts, letter: LetterRef) -> None:
    """Forget a dead letter."""
    await parts.deadletters.drop(await parts.deadletters.find(letter))
