"""What the dialogs about one need have in common: the box, the guard against stray keys, how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ItemGrid, Vertical
from textual.events import Key as KeyPressed
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Static

from postroom.errors import NotFound, PostroomError
from postroom.lines.rows import Row, Style
from postroom.tui.news import Said
from postroom.tui.port import ScreenPart
from postroom.tui.rowlists import RowsView
from postroom.view.needs import line_of
from postroom.view.tasks import short
from postroom.view.words import address, lines_of, span
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Task
    from postroom.view.needs import Need

GUARD = 0.4
"""Seconds after something is shown for which no key decides about it: nobody has read it, so none is meant for it."""

WORD = 0.4
"""Seconds between two letters of a word; a key that decides has none before it for so long."""

SHOWN = 2.0
"""Seconds for which the end of a need is shown."""


class Key(NamedTuple):
    """A key as people know it, what it does in a word or two, and the action of the dialog."""

    key: str
    does: str
    action: str


class Keys(ItemGrid):
    """Buttons in as many lines as they need."""

    DEFAULT_CSS = """
    Keys { height: auto; grid-gutter: 0 1; margin-top: 1; }
    Keys Button { min-width: 8; width: 100%; }
    """

    def __init__(
        self,
        keys: Iterable[Key],
        *,
        id: str | None = None,  # noqa: A002 (Textual's own word)
        classes: str | None = None,
    ) -> None:
        self._keys = list(keys)
        widest = max(len(f"{each.key} {each.does}") for each in self._keys)
        super().__init__(id=id, classes=classes, min_column_width=widest + 2, regular=False)

    def compose(self) -> ComposeResult:
        """A button for each."""
        for key, does, action in self._keys:
            yield Button(
                f"{key} {does}", compact=True, action=f"screen.{action}", id=f"key-{action}"
            )


class Move(Enum):
    """How a dialog ends."""

    DONE = "done"
    """It was answered here: the next one may come."""

    GONE = "gone"
    """It was answered elsewhere, or waits no more."""

    LATER = "later"
    NEXT = "next"
    BACK = "back"


class Phase(Enum):
    """What the dialog waits for; its value is a class of the box."""

    READING = "-reading"
    ASK = "-ask"
    DENY = "-deny"
    EDIT = "-edit"
    ALWAYS = "-always"
    ALL = "-all"
    BUSY = "-busy"
    OVER = "-over"


TYPING = frozenset({Phase.DENY, Phase.EDIT, Phase.ALWAYS})
"""Phases in which the person types: the next keys are letters of theirs."""


class Below(Vertical):
    """What stands below the rows; they leave it the room that it needs."""

    DEFAULT_CSS = "Below { height: auto; }"

    def on_resize(self, _: Resize) -> None:
        """It may have become higher."""
        if isinstance(self.screen, NeedDialog):
            self.screen.fit()


class NeedDialog(ScreenPart, ModalScreen[Move]):
    """Shows one need.

    Args:
        place: which one it is, and of how many.
        by_itself: it opens without the person's doing, so that keys do not count at once.
    """

    DEFAULT_CSS = """
    NeedDialog { align: center middle; }
    NeedDialog #box {
        width: 92%; max-width: 110; height: auto; max-height: 100%;
        border: round $warning; padding: 0 1; background: $surface;
    }
    NeedDialog.-narrow #box { width: 100%; }
    NeedDialog #info { height: auto; color: $text-muted; }
    NeedDialog #said { height: auto; }
    NeedDialog #said.-bad { color: $text-error; }
    NeedDialog #said.-good { color: $text-success; }
    NeedDialog .phase { display: none; }
    NeedDialog Input, NeedDialog TextArea { padding: 0 1; background: $boost; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "later"),
        Binding("t,ctrl+t", "task", "task"),
        Binding("left,left_square_bracket", "previous", "previous"),
        Binding("right,right_square_bracket,n", "following", "next"),
    ]
    PHASES: ClassVar[dict[str, frozenset[Phase]]] = {
        "previous": frozenset({Phase.READING, Phase.ASK}),
        "following": frozenset({Phase.READING, Phase.ASK}),
    }
    """In which phases an action is taken; all others are taken in each but the last two."""

    BY_LETTERS: ClassVar[bool] = False
    """One letter decides: none counts at once, also where a key has opened it, which may have been pressed twice."""

    def __init__(
        self, need: Need, place: Callable[[], tuple[int, int]], *, by_itself: bool
    ) -> None:
        super().__init__()
        self.need = need
        self.phase = Phase.READING
        self._place = place
        self._guarded_until = time.monotonic() + GUARD if by_itself else 0.0
        self._by_itself = by_itself
        self._left: Callable[[], str] = lambda: ""
        self._rows: Sequence[Row] = ()
        self._asked_for: Task | None = None
        self._unfolded = False
        self._move = Move.GONE
        self._ends_typing = False
        self._pressed = self._pressed_before = 0.0

    # ── what it shows ──

    def compose(self) -> ComposeResult:
        """The rows, what is said of them, and what the dialog has beside."""
        with Vertical(id="box"):
            yield RowsView(id="rows")
            with Below(id="below"):
                yield Static(id="info", markup=False)
                yield Static(id="said", markup=False)
                yield from self.more()

    def more(self) -> Iterable[Widget]:
        """Widgets below the rows; those of class `phase` show in the phases that they have as a class."""
        return ()

    def on_mount(self) -> None:
        """Read what the post room has."""
        self.tell()
        self.say(line_of(self.need))
        self.query_one(RowsView).focus()
        self.watch(self.query_one(RowsView), "scroll_y", self.tell_more, init=False)
        self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read the whole record, again when it may have changed."""
        client = self.port.client
        try:
            found = await self.fetched(client)
        except NotFound:
            self.over(f"{self.need.who} asks no more")
        except PostroomError as error:
            # What was read before stays in sight.
            (self.say if self._rows else self.over)(whole(error), "bad")
        else:
            if self.phase not in (Phase.BUSY, Phase.OVER):
                self.take(found)

    async def fetched(self, client: AsyncClient) -> Any:
        """The record as the post room has it."""
        raise NotImplementedError

    def take(self, found: Any) -> None:
        """Show the record, or that it waits no more."""
        raise NotImplementedError

    def enter(self, phase: Phase) -> None:
        """Wait for something else, and show what belongs to it."""
        self.phase = phase
        for widget in self.query(".phase"):
            widget.display = widget.has_class(phase.value)

    def show_rows(
        self,
        rows: Sequence[Row],
        left: Callable[[], str] = lambda: "",
        task: Task | None = None,
    ) -> None:
        """Show what is asked; keys count from now on, or a moment later.

        Args:
            left: says when it expires.
            task: for which it is asked; it stands below on one line until a key unfolds it.
        """
        self._left, self._rows, self._asked_for = left, rows, task
        self.query_one(RowsView).show([*rows, *task_rows(task, whole=self._unfolded)])
        self.say("")
        if self._by_itself or self.BY_LETTERS:
            self._guarded_until = time.monotonic() + GUARD
        self.enter(Phase.ASK)
        self.tell()
        if left():
            self.set_interval(1.0, self.tell)

    def tell(self) -> None:
        """Say anew which one it is, and when it expires."""
        number, of = self._place()
        box = self.query_one("#box")
        # Who asks is in sight however long that is which is asked.
        box.border_title = Text((f"{number} of {of} · " if number else "") + self.who_asks())
        for key in self.query("#key-following, #key-previous"):
            key.display = of > 1
        for key in self.query("#key-task"):
            key.display = self._asked_for is not None
        self.tell_more()

    def who_asks(self) -> str:
        """`@coder asks to use Bash`, harmless."""
        return f"{self.need.who} asks"

    def action_task(self) -> None:
        """Show the whole task, or its first line again."""
        self._unfolded = not self._unfolded
        rows = [*self._rows, *task_rows(self._asked_for, whole=self._unfolded)]
        self.query_one(RowsView).show(rows, from_top=False)

    def tell_more(self) -> None:
        """Say how much stands below what is seen, and when it expires."""
        below = self.query_one(RowsView).hidden_below
        more = f"↓ {below} more line{'s' if below > 1 else ''}" if below else ""
        left = self._left() if self.phase is not Phase.OVER else ""
        info = self.query_one("#info", Static)
        info.update("   ".join(each for each in (more, left) if each))
        info.display = bool(more or left)

    def say(self, text: str, kind: str = "") -> None:
        """Say something below the rows; `kind` is `bad`, `good` or ""."""
        said = self.query_one("#said", Static)
        said.update(text)
        said.display = bool(text)
        said.set_class(kind == "bad", "-bad")
        said.set_class(kind == "good", "-good")

    def on_resize(self, _: Resize) -> None:
        """Use the room there is."""
        self.fit()

    def fit(self) -> None:
        """Leave the rows what the rest does not take."""
        if not self.query(Below):
            return  # it is laid out before it has anything
        below = self.query_one(Below).outer_size.height
        rows = self.query_one(RowsView)
        rows.styles.max_height = max(3, self.size.height - below - 2)
        self.call_after_refresh(self.tell_more)

    # ── keys ──

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Whether a key counts now."""
        if action in ("following", "previous") and self._place()[1] < 2:
            return False
        if action == "task":
            return self.phase is Phase.ASK and self._asked_for is not None
        if self.phase in (Phase.BUSY, Phase.OVER):
            return action not in self.PHASES and action != "back"
        if self.guarded and (action in self.PHASES or action == "back"):
            return False
        if self.hurried and action in self.PHASES and action not in ("following", "previous"):
            return False
        return self.phase in self.PHASES.get(action, frozenset(Phase))

    @property
    def types(self) -> bool:
        """Whether the person types a text."""
        return self.phase in TYPING

    @property
    def guarded(self) -> bool:
        """Whether a key may be meant for something else: what is shown is there since a moment only."""
        return time.monotonic() < self._guarded_until

    @property
    def hurried(self) -> bool:
        """Whether a letter belongs to a word: who types without looking decides nothing."""
        within = self._pressed - self._pressed_before < WORD
        return self.BY_LETTERS and self.phase is Phase.ASK and within

    def on_key(self, event: KeyPressed) -> None:
        """Any key ends what only says how it ended; but where the person typed, none that goes on with a text."""
        self._pressed_before, self._pressed = self._pressed, time.monotonic()
        if self.phase is not Phase.OVER:
            return
        event.stop()
        event.prevent_default()
        if not self.guarded and (not self._ends_typing or event.key in ("enter", "escape")):
            self._go(self._move)

    def action_back(self) -> None:
        """Leave it for later."""
        self._go(Move.LATER)

    def action_following(self) -> None:
        """Another one."""
        self._go(Move.NEXT)

    def action_previous(self) -> None:
        """The one before."""
        self._go(Move.BACK)

    # ── the end ──

    def over(
        self, text: str, kind: str = "", *, move: Move = Move.GONE, stays: bool = False
    ) -> None:
        """Say how it ended, and go: after a moment, or with `stays` at the next key.

        A person who types at that moment goes on for a while: their letters would act in what is below.
        """
        if self.phase is Phase.OVER:
            return
        self._move, self._ends_typing = move, self.types
        if self.phase is not Phase.BUSY:  # a key may be on its way that was to answer
            self._guarded_until = time.monotonic() + GUARD
        self.set_focus(None)  # every key comes here
        self.enter(Phase.OVER)
        self.say(f"{text}   ({'esc' if self._ends_typing else 'any key'})", kind)
        self.tell()
        if not stays and not self._ends_typing:
            self.set_timer(SHOWN, lambda: self._go(move))

    def done(self, said: str) -> None:
        """It was answered here: tell that, and go."""
        self.port.post_message(Said(said))
        self._go(Move.DONE)

    def _go(self, move: Move) -> None:
        if self.is_current:
            self.dismiss(move)


def whole(error: PostroomError) -> str:
    """An error, and what to do."""
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


def task_rows(task: Task | None, *, whole: bool) -> Iterator[Row]:
    """For which task of whom it is asked: on one line that is cut, or all of it; nothing for none."""
    if task is None:
        return
    head = f"for task {short(task['id'])} of {address(task['requester'])}: "
    if not whole:
        yield Row.of(head + one_line(task["text"]), Style.DIM, indent=2)
        return
    first, *rest = lines_of(task["text"])
    yield Row.of(head + first, Style.DIM, indent=2, wraps=True)
    yield from (Row.of(line, Style.DIM, indent=4, wraps=True) for line in rest)


def expires_in(need: Need, default: str) -> str:
    """When a need expires, and what that counts as; "" for never."""
    if need.expires is None:
        return ""
    left = need.expires - time.time()
    return f"expires in {span(left)}, which counts as {default}"
