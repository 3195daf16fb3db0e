"""The pane: a list that draws only the rows that have changed, and keeps its selection on the same thing."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style as RichStyle
from textual.binding import Binding, BindingType
from textual.widgets import Input

from postroom.lines.rows import Span, Style
from postroom.tui.news import LOADING, Chosen, Happened, NeedChosen, Said, Snapshot, Target
from postroom.tui.port import ScreenPart, port_of
from postroom.tui.rowlists import ItemList
from postroom.tui.sidebar import marked
from postroom.tui.sidebar.items import Item, items
from postroom.tui.typing.commands import BY_NAME
from postroom.tui.worker import acts
from postroom.view.needs import ANSWERED, Need, NeedKind
from postroom.view.room import Room
from postroom.view.tasks import short

if TYPE_CHECKING:
    from textual import events

AGEING = 30.0
"""Seconds after which ages are written anew."""


SELECTED, SELECTED_ELSEWHERE = RichStyle(reverse=True), RichStyle(underline=True)
NOTHING = RichStyle()


class Sidebar(ScreenPart, ItemList, can_focus=True):
    """What needs the person, projects, workers, others; sends Chosen and NeedChosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "move(-10)", "page up", show=False),
        Binding("pagedown", "move(10)", "page down", show=False),
        Binding("home,g", "move(-10000)", "first", show=False),
        Binding("end,G", "move(10000)", "last", show=False),
        Binding("enter", "open", "open"),
        Binding("space", "fold", "fold"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "all", "all again", show=False),
        Binding("m", "mark", "mark"),
        # Before the keys of workers: of marked requests `d` denies.
        Binding("y", "decide('allowed')", "allow marked"),
        Binding("d", "decide('denied')", "deny marked"),
        *acts.KEYS,
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (as Textual calls it)
        super().__init__(id=id)
        self._state: Room | None = None
        self._at = -1
        self._new: Counter[str] = Counter()
        self._shown = ""
        self._pressed = ""
        self._folded: set[str] = set()
        self.wanted = ""
        self._marked: set[str] = set()

    # ── what is told ──

    def on_mount(self) -> None:
        """Ages grow by themselves."""
        self.put([Item("text/loading", (Span(LOADING, Style.DIM),))])
        self.set_interval(AGEING, self._make)

    def on_resize(self) -> None:
        """Rows are as wide as the pane."""
        self._make()

    def on_snapshot(self, event: Snapshot) -> None:
        """Show the new state; the first one also chooses what is shown."""
        first, self._state = self._state is None, event.room
        self._make()
        if first and not self._shown and (target := first_target(event.room)) is not None:
            self.post_message(Chosen(target))

    def on_happened(self, event: Happened) -> None:
        """Count what is new; the state that follows shows it."""
        me = self._state.me["uid"] if self._state is not None else ""
        for one in event.events:
            sender = one.data.get("from") or {}
            if one.kind == "post" and sender.get("uid") != me:
                self._count(f"#{one.data['project']}")
            elif one.kind == "mail":
                self._count(sender.get("uid", ""))

    def _count(self, key: str) -> None:
        if key != self._shown:
            self._new[key] += 1

    def show(self, target: Target, *, select: bool = True) -> None:
        """Mark what is looked at; nothing is new there any more.

        Args:
            select: its row is selected, too, so that the keys of this pane are about it.
        """
        self._shown = str(target) if target.is_project else target.uid
        self._new.pop(self._shown, None)
        self._make()
        there = [place for place, item in enumerate(self._items) if item.shows(self._shown)]
        if select and there and self.target() != target:
            self._select(there[0])

    # ── drawing ──

    def _make(self) -> None:
        """Make the rows, draw those that differ; the selection stays on the same thing, at the same height."""
        if self._state is None:
            return
        before, old = self._items, self._at
        key = before[old].key if 0 <= old < len(before) else ""
        there = (f"agent/{worker['uid']}" for worker in self._state.workers)
        self._marked &= {*there, *(need.key for need in self._state.needs)}
        found = items(
            self._state,
            self.row_width,
            time.time(),
            self._new,
            self._shown,
            wanted=self.wanted,
            folded=self._folded,
            marked=self._marked,
        )
        self._at = _place(found, key, old, self._shown)
        self.put(found)
        if old != self._at:
            self.refresh_line(old)
            self.refresh_line(self._at)
            self.refresh_bindings()
            if key and found[self._at].key == key:
                self.scroll_to(y=self.scroll_offset.y + self._at - old, animate=False)

    def emphasis(self, place: int) -> RichStyle:
        """The selection is marked, more so where keys act on it."""
        if place != self._at:
            return NOTHING
        return SELECTED if self.has_focus else SELECTED_ELSEWHERE

    def on_focus(self) -> None:
        """The selection looks another way."""
        self.refresh_line(self._at)

    def on_blur(self) -> None:
        """The selection looks another way."""
        self.refresh_line(self._at)

    # ── moving ──

    def action_move(self, rows: int) -> None:
        """Select a row further up or down."""
        able = [place for place, item in enumerate(self._items) if item.chosen]
        if not able:
            return
        now = able.index(self._at) if self._at in able else 0
        self._select(able[max(0, min(len(able) - 1, now + rows))])

    def _select(self, place: int) -> None:
        old, self._at = self._at, place
        self.refresh_line(old)
        self.refresh_line(place)
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        # The head of the first part is seen, too, when its first row is selected.
        wanted = 0 if place <= 1 else place
        if wanted < top or place >= top + height:
            self.scroll_to(y=wanted if wanted < top else place - height + 1, animate=False)
        self.refresh_bindings()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Note what is pressed: another row may stand there when the button is let go."""
        place = event.y + self.scroll_offset.y
        self._pressed = self._items[place].key if 0 <= place < len(self._items) else ""

    def on_click(self, _: events.Click) -> None:
        """Open what was pressed, wherever it stands now."""
        places = [at for at, item in enumerate(self._items) if item.chosen]
        place = next((at for at in places if self._items[at].key == self._pressed), None)
        if self._pressed and place is not None:
            self._select(place)
            self.action_open()

    # ── less of it ──

    @property
    def filters(self) -> bool:
        """Whether there is something to filter."""
        return bool(self.wanted) or any(item.uid or item.need for item in self._items)

    def action_filter(self) -> None:
        """Type what a row must have."""
        line = FilterLine(self)
        self.screen.mount(line, after="#panes")
        line.focus()

    def narrow(self, wanted: str) -> None:
        """Show only what has these words, and select the first that is called so; "" for all."""
        self.wanted = wanted
        self._make()
        able = [place for place, item in enumerate(self._items) if item.chosen]
        named = [place for place in able if self._items[place].named(wanted.casefold().split())]
        if wanted and able and self._at not in named:
            self._select((named or able)[0])

    def action_all(self) -> None:
        """Show all again."""
        if self.wanted:
            self.narrow("")

    def action_fold(self) -> None:
        """Show the workers of a project, or only how many they are."""
        project = self._project()
        (self._folded.remove if project in self._folded else self._folded.add)(project)
        self._make()
        at = next(at for at, item in enumerate(self._items) if item.key == f"project/{project}")
        self._select(at)

    def _project(self) -> str:
        """The project of the selected row that can be folded, "" for none."""
        item, state = self.selected, self._state
        if item is None or state is None or item.need is not None or self.wanted:
            return ""
        worker = state.worker(item.uid) if item.uid else None
        project = item.name if not item.uid else worker["project"] if worker else ""
        return project if project in state.projects and state.workers_of(project) else ""

    # ── acting ──

    @property
    def selected(self) -> Item | None:
        """The selected row."""
        return self._items[self._at] if 0 <= self._at < len(self._items) else None

    def target(self) -> Target | None:
        """The project or agent of the selected row, also of one that needs the person."""
        item = self.selected
        if item is None:
            return None
        if item.need is not None:
            return Target(item.need.nick, item.need.worker) if item.need.worker else None
        return Target(item.name, item.uid)

    def action_open(self) -> None:
        """Look at what is selected, or answer it."""
        item, target = self.selected, self.target()
        if item is not None and item.need is not None:
            self.open_need(item.need)
        elif target is not None:
            self._choose(target)

    def _choose(self, target: Target) -> None:
        self.post_message(Chosen(target))
        if self.screen.has_class("-narrow"):
            self.port.look("talk")

    def open_need(self, need: Need) -> None:
        """Answer it, or look at whom it is about and say what can be done."""
        if need.kind in ANSWERED:
            self.post_message(NeedChosen(need.id))
            return
        if need.worker:
            self._choose(Target(need.nick, need.worker))
        if said := advice(need):
            self.post_message(Said(said))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """The keys of workers are there where a worker is selected or marked, others where they do something."""
        match action:
            case "act":
                return bool(self.marked()) or acts.able(self.port, self.target())
            case "fold":
                return bool(self._project())
            case "filter":
                return self.filters
            case "mark":
                return self._markable(self.selected)
            case "decide":
                return bool(self._asked())
        return True

    def action_act(self, act: str) -> None:
        """Do one of `ACTS` to the worker, or what can be done to several to those that are marked."""
        target, several = self.target(), self.marked()
        if several and act in marked.ACTS:
            marked.act(self.port, act, several, self.unmark)
        elif target is not None and acts.able(self.port, target):
            acts.ACTS[act](self.port, target)

    def action_decide(self, decision: str) -> None:
        """Answer the requests that are marked."""
        marked.decide(self.port, decision, self._asked(), self.unmark)

    # ── marks ──

    def action_mark(self) -> None:
        """Mark the row, or take its mark away, and go on to the next one."""
        item = self.selected
        if item is not None and self._markable(item):
            self._marked ^= {item.key}
            self.action_move(1)
            self._make()
            self.refresh_bindings()

    def marked(self) -> list[Target]:
        """The workers whose rows are marked, of those that are shown."""
        return [Target(item.name, item.uid) for item in self._items if self._has(item, "agent/")]

    def unmark(self) -> None:
        """Take all marks away."""
        self._marked.clear()
        self._make()
        self.refresh_bindings()

    def _asked(self) -> list[Need]:
        """The approvals that are marked."""
        found = [item for item in self._items if self._has(item, NeedKind.APPROVAL.value)]
        return [item.need for item in found if item.need is not None]

    def _has(self, item: Item, begins: str) -> bool:
        return item.key in self._marked and item.key.startswith(begins)

    def _markable(self, item: Item | None) -> bool:
        """Whether several of its kind can be dealt with at once; questions of an agent have answers of their own."""
        if item is None or self._state is None:
            return False
        if item.need is not None:
            record = item.need.record
            return item.need.kind is NeedKind.APPROVAL and record["kind"] != "question"
        return bool(item.uid) and self._state.worker(item.uid) is not None


def _place(found: list[Item], key: str, near: int, shown: str) -> int:
    """The row that is selected now, -1 for none.

    Args:
        key: what was selected; while it is there it stays so.
        near: its row. Of a need that is answered, the nearest of the others is next.
        shown: what is looked at, which is next if nothing else needs the person.
    """
    able = [place for place, item in enumerate(found) if item.chosen]
    there = [place for place in able if key and found[place].key == key]
    needs = [place for place in able if found[place].need is not None]
    looked = [place for place in able if shown and found[place].shows(shown)]
    if there or key.startswith(("agent/", "project/")):
        needs = there or able
    return min(needs or looked or able, key=lambda place: abs(place - near), default=-1)


def advice(need: Need) -> str:
    """What a person does about something that no dialog answers."""
    match need.kind:
        case NeedKind.FAILED | NeedKind.STALLED:
            return f"{need.who} {need.text}; r restarts it, postroom logs {need.nick} shows more"
        case NeedKind.ALERT:
            done = f"; done: postroom alerts clear {short(need.id)}" if need.id else ""
            return f"{need.text}{done}"
        case NeedKind.DEAD:
            return f"{need.text}: postroom deadletters list"
        case NeedKind.MAIL if not need.worker:
            return f"{need.text}: postroom inbox"
    return ""


def first_target(room: Room) -> Target | None:
    """What is shown at the start: the project of what needs the person first, else the first project."""
    for need in room.needs:
        worker = room.worker(need.worker)
        if worker is not None and worker["project"] in room.projects:
            return Target(worker["project"])
    return Target(room.projects[0]) if room.projects else None


class FilterLine(Input):
    """Stands below the panes until Enter, which keeps the filter, or Esc, which clears it."""

    DEFAULT_CSS = """
    FilterLine, FilterLine:focus { height: 1; border: none; padding: 0; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "all again"),
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
    ]

    def __init__(self, of: Sidebar) -> None:
        super().__init__(of.wanted, placeholder="filter: words of a name, a state or what is said")
        self.cursor_blink = False
        self._of = of

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter with each letter."""
        event.stop()
        self._of.narrow(self.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on in what is left of the list; where nothing is, a command was meant, if it is one."""
        event.stop()
        text = self.value.strip()
        if self._of.selected is not None:
            self._of.focus()
        elif text.partition(" ")[0] in BY_NAME:
            self._of.narrow("")
            port_of(self).begin(f"/{text}")

    def action_move(self, rows: int) -> None:
        """Select another row."""
        self._of.action_move(rows)

    def action_leave(self) -> None:
        """Show all again."""
        self._of.narrow("")
        self._of.focus()

    def on_blur(self) -> None:
        """Something else has the keys."""
        if self.app.app_focus:  # else another window has them
            self.remove()
