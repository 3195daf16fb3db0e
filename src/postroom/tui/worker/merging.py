"""What a person does with the work of a worker: merge it, take that back, bring it up to date, throw it away.

Each function returns at once; what came of it is said above the line where one types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from shlex import quote
from typing import TYPE_CHECKING

from postroom.tui.dialogs import Confirm
from postroom.tui.news import Said
from postroom.tui.port import started
from postroom.tui.worker.changes import Comment, message
from postroom.view.tasks import short
from postroom.view.workspaces import counted, merged, nothing_to_merge, offered, synced, undone
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Workspace
    from postroom.tui.news import Target
    from postroom.tui.port import ScreenPort

NAMED = 5
"""Files that a question names."""

Then = Callable[[], None]
"""What follows where it was done."""


def nothing() -> None:
    """Nothing follows."""


@started
async def merge(app: ScreenPort, ref: str, then: Then = nothing, seen: str = "") -> None:
    """Say what a merge would do, and do it after one key.

    Args:
        ref: `@UID` of the worker, or the id of a task of it.
        seen: the tree that the person has looked at, "" for none; another one is not merged.
    """
    app.post_message(Said("looking at what a merge would do ..."))
    found = await app.client.apply(ref)
    if not found["command"]:
        app.post_message(Said(nothing_to_merge(found)))
        return
    if seen and found["tree"] != seen:
        then()
        app.post_message(Said("it has gone on since: look at what is new, then m again", bad=True))
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
    done = await app.client.apply(ref, merge=True, tree=found["tree"])
    app.post_message(Said(f"{merged(done)}\nu in the diff (d) takes it back"))
    then()


@started
async def undo(app: ScreenPort, ref: str, then: Then = nothing) -> None:
    """Take back the last merge: the branch of the person is where it was before."""
    app.post_message(Said("taking the merge back ..."))
    app.post_message(Said(undone(await app.client.apply(ref, undo=True))))
    then()


@started
async def send(
    app: ScreenPort, target: Target, said: Sequence[Comment], then: Then = nothing
) -> None:
    """Send comments to the agent as one message, after a question."""
    places = ", ".join(each.place for each in said)
    title = f"send {counted(len(said), 'comment')} to {target}"
    if not await app.push_screen_wait(Confirm(title, f"As one message, about: {places}")):
        return
    text = message(said)
    # The same again after an error is the same message.
    key = sha256(f"{target.uid}\n{app.review.run}\n{text}".encode(errors="replace")).hexdigest()
    await app.client.send(target.uid, text, key=key)
    app.review.sent(target.uid, said)
    app.post_message(Said(f"sent to {one_line(str(target))}: {counted(len(said), 'comment')}"))
    then()


@started
async def sync(app: ScreenPort, target: Target, then: Then = nothing) -> None:
    """Bring a worker up to the newest commit of the person's branch; what conflicts its agent may join."""
    who = one_line(str(target))
    app.post_message(Said(f"bringing {who} up to date; that waits for the end of its turn ..."))
    found = await app.client.sync(target.uid)
    if names := found["conflicts"]:
        said = f"Nothing was changed: {', '.join(names[:NAMED])}{' ...' * (len(names) > NAMED)}"
        let = (
            f"{said} {'conflicts' if len(names) == 1 else 'conflict'} with its work.",
            "It gets a task to join both; look at the merge then, before you take it over.",
        )
        title = f"let {who} resolve {counted(len(names), 'conflict')}"
        if not await app.push_screen_wait(Confirm(title, *let)):
            return
        app.post_message(Said(f"{who} is given the conflicts ..."))
        found = await app.client.sync(target.uid, resolve=True)
    task = found["task"]
    app.post_message(Said(f"{who} joins both: /task {short(task)}" if task else synced(found)))
    then()


@started
async def discard(
    app: ScreenPort, target: Target, workspace: Workspace, then: Then = nothing
) -> None:
    """Remove a worker with its folder, after a question; its branch stays."""
    worker = app.room.worker(target.uid) if app.room is not None else None
    count = worker.get("open_tasks", 0) if worker else 0
    branch = workspace["branch"]
    kept = (
        f"What it did stays on the branch {branch} until: git branch -D {quote(branch)}"
        if branch
        else "All its work is in that folder."
    )
    said = ["It is stopped, has no address any more, and its folder is deleted.", kept]
    if count:
        said.insert(0, f"Its {counted(count, 'open task')} will fail.")
    if not await app.push_screen_wait(Confirm(f"discard {target}", *said)):
        return
    await app.client.remove(target.uid, purge=True)
    app.post_message(Said(f"removed {one_line(str(target))} with its files"))
    then()
