"""Who delegated what to whom: the tasks that led to one, and all that were given because of it.

A request names the task for which its agent makes it (`references`). Where it does not, as with older records, the
cause is the task at which the requester was busy then: such an edge is `guessed`. The functions block: run them in a
thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom.errors import NotFound
from postroom.lines.rows import Row, Span, Style
from postroom.lines.words import address, ago
from postroom.view.tasks import run_time, short, state_style
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Task

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


def tree_of(client: Client, ref: str) -> Node:
    """The tree that has the task `ref`, from the first task down.

    Raises:
        NotFound: there is no such task.
    """
    node = Node(client.task(ref))
    seen = {node.task["id"]}
    for _ in range(DEEPEST):
        cause, guessed = _cause(client, node.task)
        if cause is None or cause["id"] in seen:
            break
        seen.add(cause["id"])
        node.guessed = guessed
        node = Node(cause)
    _grow(client, node)
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
            Span(one_line(task["state"]), state_style(task["state"])),
            Span(f" {when}{' ?' if node.guessed else ''}  ", Style.DIM),
            Span(one_line(task["text"], 80)),
            Span(f"  → {said}" if said else "", Style.DIM),
            Span(f"  {short(task['id'])}", Style.DIM),
        )
    )


def _result(task: Task) -> str:
    """The text of its first result."""
    return next((text for each in task.get("artifacts", ()) if (text := each["text"])), "")


def _cause(client: Client, task: Task) -> tuple[Task | None, bool]:
    """The task for which this one was given, and whether that is guessed."""
    by = task["requester"]
    if by["kind"] not in WORKS:
        return None, False
    for named in task.get("references", ()):
        try:
            cause = client.task(named)
        except NotFound:
            continue
        # The name is its requester's word: it counts only for a task of theirs.
        if cause["worker"]["uid"] == by["uid"]:
            return cause, False
    earlier = client.tasks(worker=by["uid"], before=task["requested"], limit=LISTED)
    at_work = [one for one in earlier if _during(one, task)]
    if not at_work:
        return None, False
    return max(at_work, key=lambda one: parse_time(one.get("started_at") or "")), True


def _grow(client: Client, root: Node) -> None:
    """Put below each task those that were given because of it."""
    seen = {root.task["id"]}
    level = [root]
    for _ in range(2 * DEEPEST):
        below: list[Node] = []
        for node in level:
            for child in _caused(client, node.task):
                if child.task["id"] in seen or len(seen) >= MOST:
                    continue
                seen.add(child.task["id"])
                node.children.append(child)
                below.append(child)
        if not below:
            return
        level = below


def _caused(client: Client, task: Task) -> Iterator[Node]:
    """The tasks that its worker gave because of it, the oldest first."""
    if task["worker"]["kind"] not in WORKS:
        return
    given = client.tasks(requester=task["worker"]["uid"], limit=LISTED)
    for one in reversed(given):
        if one["requested"] <= task["requested"] or not _during(task, one):
            continue
        whole = client.task(one["id"])
        references = whole.get("references", [])
        if not references or task["id"] in references:
            yield Node(whole, guessed=not references)


def _during(task: Task, other: Task) -> bool:
    """Whether `other` was given while the worker of `task` was at it."""
    began = task.get("started_at")
    if not began:
        return False
    given = parse_time(other["created_at"])
    return parse_time(began) <= given and (
        not task["final"] or given <= parse_time(task["updated_at"])
    )
