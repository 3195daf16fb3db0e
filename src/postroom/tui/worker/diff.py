"""What a worker changed: read, marked as seen, commented on, opened in the person's editor, merged.

The editor gets a copy: the folder of a worker is its own, and what lies there may be a link elsewhere by the time an
editor writes it.
"""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import click
from textual.app import App, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from postroom.errors import EnvironmentFault, InvalidInput, PostroomError
from postroom.lines.inputs import diff_style
from postroom.lines.rows import Row, Span, Style
from postroom.protocol.modes import DIRECT
from postroom.tui.news import Said, trouble
from postroom.tui.rowlog.byrow import ByRow
from postroom.tui.rowlog.log import Block
from postroom.tui.worker import merging
from postroom.tui.worker.changes import Comment, File, Line, files_of
from postroom.tui.worker.reading import Read, Reading
from postroom.view.workspaces import AGAINST_BOTH, MORE, changed, counted, place, waits
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Difference
    from postroom.tui.news import Target

FILES = 12
"""Files that the head lists."""


class Diff(Reading):
    """What a worker changed, and what can be done with it; a key that cannot do anything now is not there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "merge", "merge"),
        Binding("u", "undo", "undo merge"),
        Binding("s", "sync", "sync"),
        Binding("v", "seen", "seen"),
        Binding("w", "say", "comment"),
        Binding("W", "send", "send comments"),
        Binding("e", "edit", "editor"),
        Binding("D", "discard", "discard"),
    ]

    def __init__(self, client: AsyncClient, target: Target) -> None:
        super().__init__(f"{target}: what it changed", partial(self._fetched, client))
        self._target = target
        self._found: Difference | None = None
        self._files: list[File] = []

    @property
    def _log(self) -> ByRow:
        return self.query_one(ByRow)

    def made_log(self) -> ByRow:
        """See `Reading`."""
        return ByRow()

    async def _fetched(self, client: AsyncClient) -> Read:
        found = await client.diff(self._target.uid)
        self._files = files_of(found["text"])
        self._found = found
        blocks = [self._block(number) for number in range(len(self._files))]
        return self._head(found), blocks + list(_both(found, len(blocks)))

    # ── what is shown ──

    def _head(self, found: Difference) -> list[Row]:
        seen = sum(map(self._is_seen, self._files))
        rows = list(head_rows(found, self._files))
        if seen:
            rows.append(Row.of(f"{seen} of {counted(len(self._files), 'file')} seen", Style.DIM))
        if said := self._comments():
            rows.append(Row.of(f"{counted(len(said), 'comment')} not sent: W sends", Style.ASKS))
        return rows

    def _block(self, number: int) -> Block:
        file, seen = self._files[number], self._is_seen(self._files[number])
        rows = [row for _, row in _rows(file, self._comments(), seen=seen)]
        return Block(rows, f"file {number}", folds=True, folded=seen)

    def _is_seen(self, file: File) -> bool:
        return self.port.review.seen(file.digest(self._target.uid))

    def _comments(self) -> Sequence[Comment]:
        return self.port.review.comments(self._target.uid)

    def _at(self) -> tuple[int, Line] | None:
        """The number of the file under the cursor, and the line; the first one, while there is no cursor."""
        key, row = self._log.place
        number = int(key.removeprefix("file ") or 0) if key else 0
        if number >= len(self._files):
            return None
        file = self._files[number]
        lines = [line for line, _ in _rows(file, self._comments(), seen=False)]
        return number, lines[min(row, len(lines) - 1)]

    def _redraw(self, number: int) -> None:
        """Draw a file and the head anew."""
        self._log.put([self._block(number)])
        if self._found is not None:
            self.head(self._head(self._found))

    # ── keys ──

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys that can do something."""
        if action in ABLE:
            return self._found is not None and ABLE[action](self._found)
        if action in ("seen", "say", "edit"):
            return bool(self._files)
        if action == "send":
            return bool(self._comments())
        return super().check_action(action, parameters)

    def action_merge(self) -> None:
        """Say what a merge would do, and do it after one key."""
        seen = self._found["tree"] if self._found is not None else ""
        merging.merge(self.port, f"@{self._target.uid}", self._again, seen)

    def action_undo(self) -> None:
        """Take the last merge back."""
        merging.undo(self.port, f"@{self._target.uid}", self._again)

    def action_sync(self) -> None:
        """Bring the worker up to the person's newest commit."""
        merging.sync(self.port, self._target, self._again)

    def action_discard(self) -> None:
        """Remove the worker with its folder, after a question."""
        if self._found is not None:
            merging.discard(self.port, self._target, self._found["workspace"], self._gone)

    def action_seen(self) -> None:
        """Mark the file as seen and go to the next one, or take the mark away."""
        at = self._at()
        if at is None:
            return
        number, file = at[0], self._files[at[0]]
        seen = not self._is_seen(file)
        self._kept(partial(self.port.review.mark, file.digest(self._target.uid), seen=seen))
        self._redraw(number)
        self._log.fold(f"file {number}", folded=seen)
        self._log.to(f"file {number + seen}") or self._log.to(f"file {number}")

    def action_say(self) -> None:
        """Say something about the line, or on the head of a file about the file."""
        at = self._at()
        if at is None or self.query(SayingLine):
            return
        number, line = at
        file = self._files[number]
        about = Comment(file.name, line.number, line.text if line.number else "", "")
        before = next((said.text for said in self._comments() if said.about(file, line)), "")

        def done(text: str) -> None:
            said = Comment(about.file, about.number, about.quoted, text)
            self._kept(partial(self.port.review.say, self._target.uid, said))
            self._redraw(number)

        self.mount(saying := SayingLine(self._log, about.place, before, done), after=self._log)
        saying.focus()

    def action_send(self) -> None:
        """Send all comments as one message, after a question."""
        merging.send(self.port, self._target, self._comments(), self._all_anew)

    def action_edit(self) -> None:
        """Open the file in the person's editor."""
        at = self._at()
        if at is not None:
            self.run_worker(partial(self._show_copy, self._files[at[0]].name))

    async def _show_copy(self, name: str) -> None:
        """Open a copy of a file; what is changed there goes nowhere, and that is said."""
        app, said = self.port, one_line(name, 200)
        app.post_message(Said(f"fetching {said} ..."))
        try:
            text = await _text(app.client, self._target.uid, name)
            _edit(self.app, PurePosixPath(name).name, text)
        except PostroomError as error:
            app.post_message(trouble(error))
        else:
            copy = f"that was a copy of {said} as {one_line(str(self._target))} has it"
            app.post_message(Said(f"{copy}: w says what to change, m takes it over"))

    def _kept(self, change: Callable[[], None]) -> None:
        try:
            change()
        except PostroomError as error:
            self.post_message(trouble(error))

    def _again(self) -> None:
        """Fetch it again, if it is still shown."""
        if self.is_mounted:
            self.action_again()

    def _all_anew(self) -> None:
        if self.is_mounted:
            for number in range(len(self._files)):
                self._redraw(number)

    def _gone(self) -> None:
        if self.is_current:
            self.dismiss(None)


def _mergeable(found: Difference) -> bool:
    """Whether the person's branch has not got all of it."""
    workspace = found["workspace"]
    compared = workspace.get("onto") and "ahead" in workspace
    return bool(found["command"]) and not (compared and not workspace.get("ahead"))


ABLE: dict[str, Callable[[Difference], bool]] = {
    "merge": _mergeable,
    "undo": lambda found: bool(found["workspace"].get("merged")),
    "sync": lambda found: bool(found["workspace"].get("behind")),
    "discard": lambda found: found["workspace"]["mode"] != DIRECT,
}
"""The keys that are not always there."""


def head_rows(found: Difference, files: Sequence[File]) -> Iterator[Row]:
    """Where, how much, which files; what is missing, and how it is taken over."""
    workspace = found["workspace"]
    where = Span(f" {place(workspace)}", Style.BAD if workspace["mode"] == DIRECT else Style.PLAIN)
    yield Row((Span(changed(found), Style.STRONG), where), wraps=True)
    for file in files[:FILES]:
        yield Row(
            (
                Span(f"+{file.added}", Style.ADDED),
                Span(f" -{file.removed} ", Style.REMOVED),
                Span(one_line(file.name)),
            ),
            indent=2,
        )
    if len(files) > FILES:
        yield Row.of(f"… {len(files) - FILES} more files", Style.DIM, indent=2)
    for name in found["left"]:
        yield Row.of(f"not brought back: {one_line(name, 300)}", Style.ASKS, wraps=True)
    if found["cut"]:
        yield Row.of(MORE, Style.ASKS, wraps=True)
    if found.get("merge"):
        yield Row.of(waits(found["worker"]), Style.ASKS, wraps=True)
    if found["command"]:
        keys = "m merges it; in a shell: " if _mergeable(found) else "by hand: "
        yield Row.of(f"{keys}{one_line(found['command'])}", wraps=True)


def _both(found: Difference, number: int) -> Iterator[Block]:
    """A merge that does not count yet, as a block behind those of the files."""
    if merge := found.get("merge"):
        lines = [AGAINST_BOTH, *printable(merge["text"]).split("\n")]
        rows = [Row.of(line, diff_style(line), wraps=True) for line in lines]
        yield Block(rows, f"file {number}", folds=True)


def _rows(file: File, comments: Sequence[Comment], *, seen: bool) -> Iterator[tuple[Line, Row]]:
    """The rows of a file, each with the line that it is about: what is said stands below it, or below the first one."""
    mine = [said for said in comments if said.file == file.name]
    placed = {id(said) for said in mine if any(said.about(file, line) for line in file.lines)}
    for number, line in enumerate(file.lines):
        first = number == 0
        mark = (Span("✓ seen ", Style.GOOD),) if seen and first else ()
        yield line, Row((*mark, Span(line.text, diff_style(line.text))), wraps=True)
        for said in mine:
            if said.about(file, line) or (first and id(said) not in placed):
                at = "" if said.about(file, line) else f"{said.place}: "
                yield line, Row.of(f"» {at}{one_line(said.text)}", Style.ASKS, indent=2, wraps=True)


class SayingLine(Input):
    """Stands below the diff until Enter or Esc.

    Args:
        place: what it is about.
        before: what was said about it.
        done: takes what is said, "" for nothing; not called where the person leaves it.
    """

    DEFAULT_CSS = """
    SayingLine, SayingLine:focus { height: 1; border: none; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, below: Widget, place: str, before: str, done: Callable[[str], None]) -> None:
        hint = f"about {one_line(place, 200)}: Enter keeps it, Esc leaves it"
        super().__init__(before, placeholder=hint, select_on_focus=False)
        self.cursor_blink = False
        self._below, self._done = below, done

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it."""
        event.stop()
        self._done(one_line(self.value.strip()))
        self.action_leave()

    def action_leave(self) -> None:
        """Go back to the diff."""
        self._below.focus()
        self.remove()


async def _text(client: AsyncClient, uid: str, name: str) -> str:
    """The file as the worker has it.

    Raises:
        InvalidInput: there are no lines to show.
    """
    found = await client.diff(uid, [name], whole=True)
    if found["cut"]:
        raise InvalidInput("the file is too large", remedy="look at the branch with git")
    lines = [line for file in files_of(found["text"]) for line in file.now]
    if not lines:
        raise InvalidInput("it is removed, empty, or no text")
    return "\n".join(lines) + "\n"


def _edit(app: App[Any], name: str, text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="postroom-") as folder:
        # The name is a worker's word, and programs take some for more than a name.
        copy = Path(folder, re.sub(r"[^\w.-]|^[.-]+", "_", name)[-100:] or "file")
        copy.write_text(text, encoding="utf-8")
        copy.chmod(0o400)
        try:
            with app.suspend():
                # Ctrl-C is the editor's; a program that is started anew has the usual again.
                before = signal.signal(signal.SIGINT, lambda *_: None)
                try:
                    click.edit(filename=str(copy))
                finally:
                    signal.signal(signal.SIGINT, before)
        except SuspendNotSupported as error:
            raise EnvironmentFault("no editor can be shown here") from error
        except click.ClickException as error:
            raise EnvironmentFault(
                f"the editor failed: {one_line(error.message, 200)}",
                remedy="EDITOR names another one",
            ) from error
