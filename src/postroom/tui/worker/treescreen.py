"""The screens with the tree of a task, and with a task whole: each opens the other."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Footer, Static, Tree
from textual.widgets.tree import TreeNode

from postroom.errors import PostroomError
from postroom.lines.rows import Row, Style
from postroom.lines.words import address
from postroom.tui.news import Snapshot
from postroom.tui.port import port_of
from postroom.tui.worker.reading import Reading
from postroom.tui.worker.showing import text_of
from postroom.tui.worker.tasks import read_task
from postroom.tui.worker.tree import Node, row_of, tree_of
from postroom.view.tasks import short
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Task

SOON = 1.0
"""Seconds after which the tree is fetched again when something has happened."""

GUESSED = "?: only the time says that it belongs there"


class TaskTree(ModalScreen[None]):
    """Who delegated what to whom because of a task.

    Args:
        title: whose tree it is.
        worker: the uid of the worker whose present task is meant, else its last one.
        task: the id of the task that is meant, or a beginning of it; "" for that of the worker.
    """

    DEFAULT_CSS = """
    TaskTree { background: $background; }
    TaskTree > Static { height: auto; padding: 0 1; }
    TaskTree > Tree { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "back"),
        Binding("enter", "open", "show task", priority=True),
        Binding("space", "fold", "fold", priority=True),
        Binding("ctrl+r", "again", "fetch again"),
    ]

    def __init__(self, title: str, *, worker: str = "", task: str = "") -> None:
        super().__init__()
        self._title, self._worker, self._meant = one_line(title), worker, task
        self._folded: set[str] = set()
        self._shown: Node | None = None
        self._due: Timer | None = None

    def compose(self) -> ComposeResult:
        """Title, tree, keys."""
        title = f"{self._title}: who gave which task, and what came of it"
        yield Static(Text(title, style="bold"), markup=False)
        yield Static("fetching ...", id="tree-note", markup=False)
        yield Tree("", id="tree")
        yield Footer()

    def on_mount(self) -> None:
        """Fetch it."""
        tree = self._tree
        tree.show_root = True
        tree.guide_depth = 3
        tree.focus()
        self.action_again()

    @property
    def _tree(self) -> Tree[str]:
        return self.query_one("#tree", Tree)

    def on_snapshot(self, _: Snapshot) -> None:
        """Something has happened."""
        if self._due is None:
            self._due = self.set_timer(SOON, self.action_again)

    def action_again(self) -> None:
        """Fetch it, also once more."""
        self._due = None
        self.run_worker(self._fetch(), exclusive=True)

    def action_back(self) -> None:
        """Go."""
        self.dismiss(None)

    def action_open(self) -> None:
        """Show the task under the cursor."""
        node = self._tree.cursor_node
        if node is not None and node.data:
            self.app.push_screen(task_screen(port_of(self).client, node.data))

    def action_fold(self) -> None:
        """Fold or unfold what is below the cursor."""
        node = self._tree.cursor_node
        if node is None or not node.data:
            return
        node.toggle()
        (self._folded.discard if node.is_expanded else self._folded.add)(node.data)

    async def _fetch(self) -> None:
        app = port_of(self)
        note = self.query_one("#tree-note", Static)
        try:
            found = await app.calls.run(partial(_found, app.client, self._worker, self._meant))
        except PostroomError as error:
            note.update(text_of([Row.of(error.message, Style.BAD)]))
            return
        if found is None:
            note.update(text_of([Row.of("it has had no task yet", Style.DIM)]))
            return
        guessed = any(node.guessed for node in found.all())
        note.update(text_of([Row.of(GUESSED, Style.DIM)]) if guessed else "")
        note.display = guessed
        self._draw(found)

    def _draw(self, found: Node) -> None:
        tree, now = self._tree, time.time()
        at = tree.cursor_node.data if tree.cursor_node is not None else None
        tree.clear()
        tree.root.set_label(Text(f"{address(found.task['requester'])} asked", style="bold"))
        tree.root.expand()
        first = self._add(tree.root, found, now)
        own = next((each for each in _below(first) if each.data == at), None)
        # The worker's own task is what one came for.
        own = own or next((e for e in _below(first) if e.data == self._own(found)), first)
        tree.call_after_refresh(tree.move_cursor, own)
        self._shown = found

    def _own(self, found: Node) -> str:
        mine = [n.task["id"] for n in found.all() if self._counts(n.task)]
        return mine[-1] if mine else ""

    def _counts(self, task: Task) -> bool:
        return (
            task["id"].startswith(self._meant)
            if self._meant
            else task["worker"]["uid"] == self._worker
        )

    def _add(self, above: TreeNode[str], node: Node, now: float) -> TreeNode[str]:
        id_ = node.task["id"]
        label = text_of([row_of(node, now)])
        if not node.children:
            return above.add_leaf(label, id_)
        added = above.add(label, id_, expand=id_ not in self._folded)
        for child in node.children:
            self._add(added, child, now)
        return added


class TaskWhole(Reading):
    """A task, whole."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "tree", "tasks")]

    def __init__(self, client: Client, ref: str) -> None:
        super().__init__(f"task {short(ref)}", partial(read_task, client, ref))
        self._ref = ref

    def action_tree(self) -> None:
        """Show for which tasks it was given, and which were given for it."""
        self.app.push_screen(TaskTree(f"task {short(self._ref)}", task=self._ref))


def task_screen(client: Client, ref: str) -> TaskWhole:
    """The screen with a task, whole; `ref` is its id, or a beginning of that."""
    return TaskWhole(client, ref)


def _below(node: TreeNode[str]) -> list[TreeNode[str]]:
    return [node, *(each for child in node.children for each in _below(child))]


def _found(client: Client, uid: str, task: str) -> Node | None:
    """The tree of a task, else of what an agent works on, or did last."""
    if task:
        return tree_of(client, task)
    newest = client.tasks(worker=uid, open_only=True, limit=100)
    begun = [task for task in newest if task.get("started_at")]
    found = begun or newest or client.tasks(worker=uid, limit=1)
    return tree_of(client, found[0]["id"]) if found else None
