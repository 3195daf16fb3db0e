"""Dead letters: list, show, requeue, drop."""

from __future__ import annotations

from postroom.control.described import STORING, fails
from postroom.control.in_flight import acted_on, came_by
from postroom.control.parameters import Before, LetterRef, Limit, next_page
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, NotFound
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes(prefix="/deadletters")
    letters = parts.deadletters

    @routes.get("")
    @needs(Scope.READ)
    async def deadletters(me: Caller, limit: Limit = 50, before: Before = 0) -> answers.Deadletters:
        """List the messages that could not be delivered, the newest first."""
        found = await letters.all(limit, before, only=me.only)
        older = next_page(found, limit, lambda letter: letter.id)
        return {"deadletters": [letter.as_json() for letter in found], "next": older}

    @routes.get("/{letter}")
    @needs(Scope.READ)
    @fails(NotFound, Conflict)
    async def show(letter: LetterRef, me: Caller) -> shapes.Dead:
        """Show a dead letter."""
        return (await letters.get(await letters.find(letter, me.only))).as_json()

    @routes.post("/{letter}/requeue", status_code=201)
    @needs(Scope.OPERATE)
    @fails(NotFound, Conflict, *STORING)
    async def requeue(letter: LetterRef, me: Caller) -> answers.Requeued:
        """Send a dead letter again as a new message.

        The old one stays dead and is linked to it. A letter that stands for a task has the task asked for again.
        """
        number = await letters.find(letter)
        dead = await letters.get(number)
        if not dead.task:
            return {"id": await letters.requeue(number)}
        view = await parts.retries.retry(dead.task, me, door=came_by())
        acted_on(task=view.id, message=view.request)
        return {"id": view.request}

    @routes.delete("/{letter}", status_code=204)
    @needs(Scope.OPERATE)
    @fails(NotFound, Conflict)
    async def drop(letter: LetterRef) -> None:
        """Forget a dead letter."""
        await letters.drop(await letters.find(letter))

    return routes
