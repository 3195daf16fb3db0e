"""What a worker changed: fetched, as rows, and merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType

from postroom.lines.rows import Row, Span, Style
from postroom.lines.workspaces import MORE, changed, diff_style, place
from postroom.tui.rowlog.log import Block
from postroom.tui.worker import merging
from postroom.tui.worker.reading import Read, Reading
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Difference
    from postroom.tui.app import PostroomApp
    from postroom.tui.news import Target

FILES = 12
"""Files that the head lists."""


class Diff(Reading):
    """What a worker changed, and what can be done with it; a key that cannot do anything now is not there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "merge", "merge"),
        Binding("u", "undo", "undo merge"),
    ]

    def __init__(self, client: Client, target: Target) -> None:
        super().__init__(f"{target}: what it changed", partial(self._fetched, client))
        self._target = target
        self._found: Difference | None = None

    def _fetched(self, client: Client) -> Read:
        found = self._found = client.diff(self._target.uid)
        return list(head_rows(found)), diff_blocks(found)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys that can do something."""
        if action in ABLE:
            return self._found is not None and ABLE[action](self._found)
        return super().check_action(action, parameters)

    def action_merge(self) -> None:
        """Say what a merge would do, and do it after one key."""
        merging.merge(cast("PostroomApp", self.app), f"@{self._target.uid}", self._again)

    def action_undo(self) -> None:
        """Take the last merge back."""
        merging.undo(cast("PostroomApp", self.app), f"@{self._target.uid}", self._again)

    def _again(self) -> None:
        """Fetch it again, if it is still shown."""
        if self.is_mounted:
            self.action_again()


def _mergeable(found: Difference) -> bool:
    """Whether the person's branch has not got all of it."""
    workspace = found["workspace"]
    compared = workspace.get("onto") and "ahead" in workspace
    return bool(found["command"]) and not (compared and not workspace.get("ahead"))


ABLE: dict[str, Callable[[Difference], bool]] = {
    "merge": _mergeable,
    "undo": lambda found: bool(found["workspace"].get("merged")),
}
"""The keys that are not always there."""


def head_rows(found: Difference) -> Iterator[Row]:
    """Where, how much, which files; what is missing, and the command that takes it over."""
    where, style = place(found["workspace"])
    yield Row((Span(changed(found), Style.STRONG), Span(f" {where}", style)), wraps=True)
    counted = list(_files(found["text"]))
    for name, added, removed in counted[:FILES]:
        yield Row(
            (
                Span(f"+{added}", Style.ADDED),
                Span(f" -{removed} ", Style.REMOVED),
                Span(name),
            ),
            indent=2,
        )
    if len(counted) > FILES:
        yield Row.of(f"… {len(counted) - FILES} more files", Style.DIM, indent=2)
    for name in found["left"]:
        yield Row.of(f"not brought back: {one_line(name, 300)}", Style.ASKS, wraps=True)
    if found["cut"]:
        yield Row.of(MORE, Style.ASKS, wraps=True)
    if found["command"]:
        keys = "m merges it; in a shell: " if _mergeable(found) else "by hand: "
        yield Row.of(f"{keys}{one_line(found['command'])}", wraps=True)


def diff_blocks(found: Difference) -> list[Block]:
    """A block for each file, which folds."""
    blocks: list[Block] = []
    rows: list[Row] = []
    for line in printable(found["text"]).split("\n"):
        if line.startswith("diff --git ") and rows:
            blocks.append(Block(rows, f"file {len(blocks)}", folds=True))
            rows = []
        rows.append(Row.of(line, diff_style(line), wraps=True))
    if any(row.text for row in rows):
        blocks.append(Block(rows, f"file {len(blocks)}", folds=True))
    return blocks


def _files(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, lines that came and lines that went of each file."""
    name, added, removed = "", 0, 0
    inside = False
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            if name:
                yield name, added, removed
            name, added, removed = line.rpartition(" b/")[2], 0, 0
            inside = False
        elif line.startswith("@@"):
            inside = True
        elif inside:
            added += line.startswith("+")
            removed += line.startswith("-")
    if name:
        yield name, added, removed
