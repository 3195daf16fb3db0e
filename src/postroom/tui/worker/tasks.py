"""Tasks of an agent: a list for its log, a task whole, and the tree of a task.

The tree says who delegated what to whom: the tasks that led to one, and all that were given because of it. A request
names the task for which its agent makes it (`references`). Where it does not, as with older records, the cause is the
task at which the requester was busy then: such an edge is `guessed`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Footer, Static, Tree
from textual.widgets.tree import TreeNode

from postroom.errors import NotFound, PostroomError
from postroom.lines.rows import Row, Span, Style, style_of
from postroom.lines.tasks import short_rows, whole_rows
from postroom.tui.looks import text_of
from postroom.tui.news import Snapshot
from postroom.tui.port import ScreenPart
from postroom.tui.rowlog.log import Block
from postroom.tui.worker.reading import Read, Reading
from postroom.view.tasks import run_time, short
from postroom.view.words import address, ago
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Task, TaskEvent

SHOWN = 20
"""Tasks of an agent without events that are listed."""

UNFOLDED = 3
"""The newest of them, whose changes are fetched."""

PAGE = 200


async def task_blocks(client: AsyncClient, uid: str, *, requester: bool = False) -> list[Block]:
    """The newest tasks of an agent, the oldest of them first.

    Args:
        requester: those that it asked for; otherwise those that it does.

    Raises:
        PostroomError: the post room is away, or refuses.
    """
    found = await client.tasks(
        worker="" if requester else uid, requester=uid if requester else "", limit=SHOWN
    )
    now = time.time()
    blocks = []
    for place, task in enumerate(found):
        events = await events_of(client, task) if place < UNFOLDED else ()
        rows = list(short_rows(task, events, now))
        folded = task["final"] and place > 0
        blocks.append(Block(rows, f"task {task['id']}", folds=len(rows) > 1, folded=folded))
    return blocks[::-1]


async def events_of(client: AsyncClient, task: Task) -> list[TaskEvent]:
    """All changes of a task."""
    found: list[TaskEvent] = []
    while page := await client.task_events(
        task["id"], after=found[-1]["seq"] if found else 0, limit=PAGE
    ):
        found += page
        if len(page) < PAGE:
            break
    return found


async def read_task(client: AsyncClient, ref: str) -> Read:
    """A task, whole, for a screen of text."""
    task = await client.task(ref)
    rows = list(whole_rows(task, await events_of(client, task), time.time()))
    return [], [Block(rows)]


# ── the tree ──

DEEPEST = 8
"""Steps up, and down."""

MOST = 100
"""Tasks of a tree."""

LISTED = 100
"""Tasks among which causes and consequences are looked for."""

WORKS = ("worker", "external")
"""Kinds of agents that may ask for a task because of another one."""


@dataclass(slots=True)
class Node:
    """A task, and those that were given because of it.

    Attributes:
        guessed: only the time speaks for it that it belongs to the task above it.
    """

    task: Task
    guessed: bool = False
    children: list[Node] = field(default_factory=list)

    def all(self) -> Iterator[Node]:
        """It, and all below it."""
        yield self
        for child in self.children:
            yield from child.all()


async def tree_of(client: AsyncClient, ref: str) -> Node:
    """The tree that has the task `ref`, from the first task down.

    Raises:
        NotFound: there is no such task.
    """
    node = Node(await client.task(ref))
    seen = {node.task["id"]}
    for _ in range(DEEPEST):
        cause, guessed = await _cause(client, node.task)
        if cause is None or cause["id"] in seen:
            break
        seen.add(cause["id"])
        node.guessed = guessed
        node = Node(cause)
    await _grow(client, node)
    return node


def row_of(node: Node, now: float) -> Row:
    """A task of the tree on one line."""
    task = node.task
    took = run_time(task, now, task["updated_at"] if task["final"] else "")
    when = took or ago(task["created_at"], now)
    said = one_line(task["status_text"] or task["detail"] or _result(task), 200)
    return Row(
        (
            Span(f"{address(task['worker'])} ", Style.STRONG),
            Span(one_line(task["state"]), style_of(task["state"])),
            Span(f" {when}{' ?' if node.guessed else ''}  ", Style.DIM),
            Span(one_line(task["text"], 80)),
            Span(f"  → {said}" if said else "", Style.DIM),
            Span(f"  {short(task['id'])}", Style.DIM),
        )
    )


def _result(task: Task) -> str:
    """The text of its first result."""
    return next((text for each in task.get("artifacts", ()) if (text := each["text"])), "")


async def _cause(client: AsyncClient, task: Task) -> tuple[Task | None, bool]:
    """The task for which this one was given, and whether that is guessed."""
    by = task["requester"]
    if by["kind"] not in WORKS:
        return None, False
    for named in task.get("references", ()):
        try:
            cause = await client.task(named)
        except NotFound:
            continue
        # The name is its requester's word: it counts only for a task of theirs.
        if cause["worker"]["uid"] == by["uid"]:
            return cause, False
    earlier = await client.tasks(worker=by["uid"], before=task["requested"], limit=LISTED)
    at_work = [one for one in earlier if _during(one, task)]
    if not at_work:
        return None, False
    return max(at_work, key=lambda one: parse_time(one.get("started_at") or "")), True


async def _grow(client: AsyncClient, root: Node) -> None:
    """Put below each task those that were given because of it."""
    seen = {root.task["id"]}
    level = [root]
    for _ in range(2 * DEEPEST):
        below: list[Node] = []
        for node in level:
            for child in await _caused(client, node.task):
                if child.task["id"] in seen or len(seen) >= MOST:
                    continue
                seen.add(child.task["id"])
                node.children.append(child)
                below.append(child)
        if not below:
            return
        level = below


async def _caused(client: AsyncClient, task: Task) -> list[Node]:
    """The tasks that its worker gave because of it, the oldest first."""
    if task["worker"]["kind"] not in WORKS:
        return []
    found: list[Node] = []
    given = await client.tasks(requester=task["worker"]["uid"], limit=LISTED)
    for one in reversed(given):
        if one["requested"] <= task["requested"] or not _during(task, one):
            continue
        whole = await client.task(one["id"])
        references = whole.get("references", [])
        if not references or task["id"] in references:
            found.append(Node(whole, guessed=not references))
    return found


def _during(task: Task, other: Task) -> bool:
    """Whether `other` was given while the worker of `task` was at it."""
    began = task.get("started_at")
    if not began:
        return False
    given = parse_time(other["created_at"])
    return parse_time(began) <= given and (
        not task["final"] or given <= parse_time(task["updated_at"])
    )


# ── the screens ──

SOON = 1.0
"""Seconds after which the tree is fetched again when something has happened."""

GUESSED = "?: only the time says that it belongs there"


class TaskTree(ScreenPart, ModalScreen[None]):
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
        self.run_worker(self._fetch, exclusive=True)

    def action_back(self) -> None:
        """Go."""
        self.dismiss(None)

    def action_open(self) -> None:
        """Show the task under the cursor."""
        node = self._tree.cursor_node
        if node is not None and node.data:
            self.app.push_screen(task_screen(self.port.client, node.data))

    def action_fold(self) -> None:
        """Fold or unfold what is below the cursor."""
        node = self._tree.cursor_node
        if node is None or not node.data:
            return
        node.toggle()
        (self._folded.discard if node.is_expanded else self._folded.add)(node.data)

    async def _fetch(self) -> None:
        app = self.port
        note = self.query_one("#tree-note", Static)
        try:
            found = await _found(app.client, self._worker, self._meant)
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

    def __init__(self, client: AsyncClient, ref: str) -> None:
        super().__init__(f"task {short(ref)}", partial(read_task, client, ref))
        self._ref = ref

    def action_tree(self) -> None:
        """Show for which tasks it was given, and which were given for it."""
        self.app.push_screen(TaskTree(f"task {short(self._ref)}", task=self._ref))


def task_screen(client: AsyncClient, ref: str) -> TaskWhole:
    """The screen with a task, whole; `ref` is its id, or a beginning of that."""
    return TaskWhole(client, ref)


def _below(node: TreeNode[str]) -> list[TreeNode[str]]:
    return [node, *(each for child in node.children for each in _below(child))]


async def _found(client: AsyncClient, uid: str, task: str) -> Node | None:
    """The tree of a task, else of what an agent works on, or did last."""
    if task:
        return await tree_of(client, task)
    newest = await client.tasks(worker=uid, open_only=True, limit=100)
    begun = [task for task in newest if task.get("started_at")]
    found = begun or newest or await client.tasks(worker=uid, limit=1)
    return await tree_of(client, found[0]["id"]) if found else None
