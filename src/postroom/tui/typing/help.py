"""Screens of text over the panes: all keys and commands, what was said before; and what the command palette offers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from postroom.lines.approvals import POLICY_HEAD, policy_rows
from postroom.lines.workers import alert_line
from postroom.tui.news import Chosen, NeedChosen, Target
from postroom.tui.port import port_of
from postroom.tui.typing.commands import VERBS, help_lines
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from postroom.protocol.shapes import Alert, Policy
    from postroom.tui.port import ScreenPort

Keys = Sequence[tuple[str, str]]
"""A key or several as people read them, and what they do."""

PLACES: tuple[tuple[str, Keys], ...] = (
    (
        "Everywhere",
        (
            ("1 2 3", "rooms, talk, worker"),
            ("Tab", "the next of them; Shift-Tab the one before"),
            ("n ctrl-n", "what needs you; ctrl-n while you type, too"),
            ("i /", "type; a command, but in the rooms"),
            ("Esc", "back, close"),
            ("ctrl-p", "all commands by name"),
            ("ctrl-l", "what was said, again"),
            ("?", "this help"),
            ("u", "start the post room of this machine, while it is down"),
            ("q ctrl-q", "leave, all goes on; ctrl-q while you type, too"),
            ("ctrl-z", "to the shell; fg comes back"),
        ),
    ),
    (
        "Rooms",
        (
            ("up down", "choose"),
            ("PgUp PgDn", "ten rows further"),
            ("Home End", "the first, the last"),
            ("Enter", "open"),
            ("/ Esc", "only what has the words that you type; all again"),
            ("space", "fold or unfold a project"),
            ("m", "mark a worker or a request, or not; s, r and x act on all marked workers"),
            ("y d", "of marked requests: allow, deny all of them (asks)"),
            ("s r x", "of a worker: stop, restart, interrupt"),
            ("d t", "of a worker: what it changed, its tasks"),
        ),
    ),
    (
        "Talk",
        (
            ("F", "search in everything that was said"),
            ("Enter", "the pane over the whole width, and back"),
            ("s r x", "of the worker: stop, restart, interrupt"),
            ("d t", "of the worker: what it changed, its tasks"),
        ),
    ),
    (
        "Talk and worker",
        (
            ("up down", "scroll"),
            ("PgUp PgDn", "by pages"),
            ("Home End", "the top; follow what comes"),
            ("space", "fold, unfold"),
            ("Enter", "open what the entry is about"),
            ("f", "find"),
            (", .", "find the earlier one, the later one"),
            ("c", "copy"),
            ("o", "open a link"),
        ),
    ),
    (
        "Worker",
        (
            ("s", "stop (asks)"),
            ("r", "restart (asks)"),
            ("x", "interrupt its turn"),
            ("d", "what it changed"),
            ("t", "its tasks as a tree: who gave which, and what came of it"),
            ("Enter", "the pane over the whole width, and back"),
            ("h", "all rows of its head, also in a low terminal"),
        ),
    ),
    (
        "What it changed",
        (
            ("m", "merge it, after a question"),
            ("u", "take the last merge back"),
            ("s", "bring the worker up to your newest commit"),
            ("v", "mark the file as seen, or not"),
            ("w W", "comment on a line or a file; send all comments"),
            ("e", "open a copy of the file in your editor"),
            ("D", "discard the worker and its folder (asks)"),
            ("[ ]", "the file before, the next one"),
        ),
    ),
    (
        "What needs you",
        (
            ("y", "allow"),
            ("d", "deny, with a reason"),
            ("e", "edit, then allow"),
            ("a", "always for this tool"),
            ("A Enter", "all in this task, until it ends"),
            ("ctrl-s", "allow what you have edited"),
            ("t ctrl-t", "the task for which it asks, whole; ctrl-t in a question"),
            ("[ ]", "the others that wait"),
            ("Esc", "later"),
        ),
    ),
    (
        "The line",
        (
            ("Enter", "send"),
            ("ctrl-j", "a new line in the text"),
            ("Tab", "complete; again, the next one"),
            ("up down", "what you typed before"),
            ("ctrl-r", "search in it for what stands here"),
            ("//", "begins a text with /"),
            ("Esc", "leave the line, the text stays"),
        ),
    ),
)


class Page(ModalScreen[None]):
    """A titled text that scrolls; Esc, q or ? closes it."""

    DEFAULT_CSS = """
    Page { align: center middle; }
    Page > Vertical {
        width: 84; max-width: 100%; height: auto; max-height: 100%;
        border: round $accent; background: $surface; border-title-align: left;
    }
    Page VerticalScroll { height: auto; max-height: 100%; padding: 0 1; scrollbar-size-vertical: 1; }
    Page Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close"),
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
    ]

    def __init__(self, title: str, parts: Iterable[RenderableType]) -> None:
        super().__init__()
        self._title, self._parts = title, tuple(parts)

    def compose(self) -> ComposeResult:
        """The text in its frame."""
        with Vertical() as frame:
            frame.border_title = self._title
            frame.border_subtitle = "Esc closes"
            with VerticalScroll():
                for part in self._parts:
                    yield Static(part, markup=False)

    def action_scroll(self, step: int) -> None:
        """A row down or up."""
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)


def help_page(app: ScreenPort) -> Page:
    """All keys by place, and all commands."""
    return Page("keys and commands", _help(app.size.width))


def _help(width: int) -> Iterator[RenderableType]:
    for place, keys in PLACES:
        yield Text(place, style="bold")
        yield _table(keys, 10)
    yield Text("Commands", style="bold")
    if width >= 70:
        yield _table(tuple(help_lines()), 34)
        return
    for line, about in help_lines():
        yield Text(line, style="cyan")
        yield Text(f"  {about}", style="dim")


def _table(rows: Keys, width: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=width, style="cyan", overflow="fold")
    table.add_column(overflow="fold")
    for name, about in rows:
        table.add_row(Text(f" {name}"), Text(about))
    return table


def log_page(said: Sequence[tuple[float, str, bool]]) -> Page:
    """What was said before, the newest first."""
    parts = [
        Text(f"{time.strftime('%H:%M:%S', time.localtime(at))}  {text}", style="red" if bad else "")
        for at, text, bad in reversed(said)
    ]
    return Page("what was said", parts or [Text("nothing yet")])


def policy_page(who: str, policy: Policy) -> Page:
    """What a worker does without asking, in the order in which it counts."""
    table = Table.grid(padding=(0, 1))
    for _ in POLICY_HEAD:
        table.add_column(overflow="fold")
    table.add_row(*(Text(each.lower(), style="dim") for each in POLICY_HEAD))
    for row in policy_rows(policy, time.time()):
        table.add_row(
            *(Text(cell.text, style="dim" if cell.dim else cell.colour or "") for cell in row)
        )
    title = f"{one_line(who)}: what it may do unasked"
    back = "to change it: /policy @NICK --allow 'PATTERN', or --remove 'PATTERN'"
    return Page(title, [table, Text(back, style="dim")])


def alerts_page(alerts: Sequence[Alert]) -> Page:
    """What went wrong, the newest last."""
    now = time.time()
    lines = [Text(alert_line(each, now)) for each in sorted(alerts, key=lambda each: each["at"])]
    back = Text("to clear one: /alerts clear ID", style="dim")
    return Page("alerts", [*lines, back] if lines else [Text("no alerts")])


Entry = tuple[str, str, "Callable[[], None]"]


class Palette(Provider):
    """Finds by a few letters; harmless texts, no markup."""

    async def discover(self) -> Hits:
        """All there is, before anything is typed."""
        for name, about, act in self._entries():
            yield DiscoveryHit(Text(name), act, text=name, help=about)

    async def search(self, query: str) -> Hits:
        """What fits."""
        matcher = self.matcher(query)
        for name, about, act in self._entries():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, Text(name), act, text=name, help=about)

    def _entries(self) -> Iterator[Entry]:
        app = port_of(self.screen)
        room = app.room
        for need in room.needs if room is not None else ():
            name = one_line(f"{need.kind.value} {need.who} {need.text}", 70)
            yield name, "needs you", lambda id_=need.id: self._post(NeedChosen(id_))
        for worker in room.workers if room is not None else ():
            target = Target(worker["nick"], worker["uid"])
            yield one_line(str(target)), worker["state"], lambda to=target: self._post(Chosen(to))
        for project in room.projects if room is not None else ():
            target = Target(project)
            yield one_line(str(target)), "project", lambda to=target: self._post(Chosen(to))
        for verb in VERBS:
            yield verb.line, verb.help, lambda word=verb.name: app.begin(f"/{word} ")

        yield "theme", "colours: light, dark, those of the terminal", self.app.search_themes

    def _post(self, message: Chosen | NeedChosen) -> None:
        self.app.post_message(message)
