"""What a person does with the work of a worker: merge it, take that back.

Each function returns at once; what came of it is said above the line where one types.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from postroom.errors import PostroomError
from postroom.lines.workspaces import merged, nothing_to_merge, offered, undone
from postroom.tui.news import Said, trouble
from postroom.tui.worker.confirming import Confirm
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.tui.app import PostroomApp

Then = Callable[[], None]
"""What follows where it was done."""


def nothing() -> None:
    """Nothing follows."""


def merge(app: PostroomApp, ref: str, then: Then = nothing) -> None:
    """Say what a merge would do, and do it after one key.

    Args:
        ref: `@UID` of the worker, or the id of a task of it.
    """
    app.run_worker(_tried(app, _merge(app, ref, then)))


def undo(app: PostroomApp, ref: str, then: Then = nothing) -> None:
    """Take back the last merge: the branch of the person is where it was before."""
    app.run_worker(_tried(app, _undo(app, ref, then)))


async def _tried(app: PostroomApp, doing: Awaitable[None]) -> None:
    try:
        await doing
    except PostroomError as error:
        app.post_message(trouble(error))


async def _merge(app: PostroomApp, ref: str, then: Then) -> None:
    app.post_message(Said("looking at what a merge would do ..."))
    found = await app.calls.run(partial(app.client.apply, ref))
    if not found["command"]:
        app.post_message(Said(nothing_to_merge(found)))
        return
    said = [
        *offered(found),
        *(f"not brought back: {one_line(name, 300)}" for name in found["left"]),
    ]
    if found["hinders"]:
        app.post_message(Said("\n".join(said), bad=True))
        return
    title = f"merge {one_line(found['branch'])} into {one_line(found['onto'])}"
    if not await app.push_screen_wait(Confirm(title, *said)):
        return
    app.post_message(Said("merging ..."))
    done = await app.calls.run(partial(app.client.apply, ref, merge=True))
    app.post_message(Said(f"{merged(done)}\nu in the diff (d) takes it back"))
    then()


async def _undo(app: PostroomApp, ref: str, then: Then) -> None:
    app.post_message(Said("taking the merge back ..."))
    app.post_message(Said(undone(await app.calls.run(partial(app.client.apply, ref, undo=True)))))
    then()
