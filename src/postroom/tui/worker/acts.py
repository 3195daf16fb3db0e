"""What a person does to a worker from anywhere in the screen: stop it, restart it, look at what it changed.

Each function returns at once; what came of it is said above the line where one types.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.binding import Binding

from postroom.tui.dialogs import Confirm, with_pin
from postroom.tui.news import Said
from postroom.tui.port import started
from postroom.tui.worker.diff import Diff
from postroom.tui.worker.tasks import TaskTree, task_screen
from postroom.view.tasks import short
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker
    from postroom.tui.news import Target
    from postroom.tui.port import ScreenPort

QUOTED = 60
"""Characters of a task in the sentence of a dialog."""


def worker_of(app: ScreenPort, target: Target) -> Worker | None:
    """The worker in the newest state of the post room, None if it has none of that id."""
    workers = app.room.status["workers"] if app.room is not None else []
    return next((worker for worker in workers if worker["uid"] == target.uid), None)


def stop(app: ScreenPort, target: Target) -> None:
    """Stop a worker, after a question."""
    sentence = (
        f"Its program is ended now; its inbox keeps what comes. {_task(app, target)}"
        " It stays stopped until: postroom restart, or the key r."
    )
    _asked(app, f"stop {target}", sentence, lambda _: app.client.stop(target.uid), "stopped")


def restart(app: ScreenPort, target: Target) -> None:
    """Stop and start a worker with the template that it has, after a question."""
    nick = one_line(target.name)
    sentence = (
        f"Its program is ended and started anew with the template that it has. {_task(app, target)}"
        f" (Template changed? postroom restart {nick})"
    )
    _asked(
        app,
        f"restart {target}",
        sentence,
        lambda pin: app.client.restart(target.uid, pin=pin),
        "restarted",
    )


def interrupt(app: ScreenPort, target: Target, reason: str = "") -> None:
    """Tell a worker's agent to end its turn; what it has done stays."""
    said = f"{one_line(str(target))} is told to end its turn, if it is in one"
    sent = partial(app.client.interrupt, target.uid, reason=reason, channel="attach")
    _do(app, lambda _: sent(), said)


def remove(app: ScreenPort, target: Target) -> None:
    """Remove a worker, after a question."""
    worker = worker_of(app, target)
    count = worker.get("open_tasks", 0) if worker else 0
    tasks = f"Its {count} open task{'s' if count > 1 else ''} will fail. " if count else ""
    sentence = (
        f"It is stopped and has no address any more. {tasks}"
        "The files of its workspace stay, and so does what it wrote."
    )
    _asked(app, f"remove {target}", sentence, lambda _: app.client.remove(target.uid), "removed")


def open_diff(app: ScreenPort, target: Target) -> None:
    """Show what a worker changed."""
    app.push_screen(Diff(app.client, target))


def open_task(app: ScreenPort, ref: str) -> None:
    """Show a task, whole; `ref` is its id, or a beginning of that."""
    app.push_screen(task_screen(app.client, ref))


def open_tree(app: ScreenPort, target: Target) -> None:
    """Show the tree of a worker's present task."""
    app.push_screen(TaskTree(str(target), worker=target.uid))


def open_tree_of(app: ScreenPort, ref: str) -> None:
    """Show the tree of a task; `ref` is its id, or a beginning of that."""
    app.push_screen(TaskTree(f"task {short(ref)}", task=ref))


ACTS: dict[str, Callable[[ScreenPort, Target], None]] = {
    "stop": stop,
    "restart": restart,
    "interrupt": interrupt,
    "diff": open_diff,
    "tree": open_tree,
}
"""What a key does to the chosen worker."""

KEYS = (
    Binding("d", "act('diff')", "diff"),
    Binding("t", "act('tree')", "tasks"),
    Binding("s", "act('stop')", "stop"),
    Binding("r", "act('restart')", "restart"),
    Binding("x", "act('interrupt')", "end turn"),
)
"""The keys of each pane that is about a worker; its `check_action` asks `able`, its `action_act` does one of `ACTS`."""


def able(app: ScreenPort, target: Target | None) -> bool:
    """Whether that is a worker of this post room, so that the keys act on it."""
    if target is None or target.is_project:
        return False
    room = app.room  # what it does not know yet may be one
    return room is None or room.worker(target.uid) is not None or room.agent(target.uid) is None


def _asked(
    app: ScreenPort, title: str, sentence: str, done: Callable[[str], Awaitable[Any]], word: str
) -> None:
    who = one_line(title.rpartition(" ")[2])

    def answered(wanted: bool | None) -> None:
        if wanted:
            _do(app, done, f"{word} {who}")

    app.push_screen(Confirm(title, sentence), answered)


@started
async def _do(app: ScreenPort, done: Callable[[str], Awaitable[Any]], said: str) -> None:
    """Do it, with the PIN where that is demanded, and say what came of it."""
    await with_pin(app, done)
    app.post_message(Said(said))


def _task(app: ScreenPort, target: Target) -> str:
    """What becomes of its task."""
    worker = worker_of(app, target)
    task = worker.get("task") if worker else None
    if not task:
        return "Open tasks wait for it."
    return f'Its task {short(task["id"])} "{one_line(task["text"], QUOTED)}" goes on when it runs again.'
