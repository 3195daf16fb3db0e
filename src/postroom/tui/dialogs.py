"""Dialogs over everything: one says what will happen, and does it at one key; one asks for the PIN of the person."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from postroom.client.answering import Tries
from postroom.errors import PinRequired, PinWrong
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.tui.port import ScreenPort

GUARD = 0.4
"""Seconds for which `y` does not count: who types fast has not read the question."""


class Confirm(ModalScreen[bool]):
    """True if the person wants it.

    Args:
        title: what is to be done, such as `stop @coder`.
        sentences: what will happen, a paragraph each; a text is shown as it is.
    """

    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > Vertical { width: 70; max-width: 96%; height: auto; max-height: 90%; }
    Confirm > Vertical { border: round $warning; padding: 0 1; }
    Confirm Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, title: str, *sentences: str | Text) -> None:
        super().__init__()
        self._title = one_line(title)
        self._sentences = [
            each if isinstance(each, Text) else Text(one_line(each)) for each in sentences
        ]
        self.guarded_until = float("inf")  # until it is seen

    def compose(self) -> ComposeResult:
        """The question and its keys."""
        with Vertical():
            yield Static(Text(f"{self._title}?", style="bold"), markup=False)
            for sentence in self._sentences:
                yield Static(sentence, markup=False)
            yield Static(Text("y: yes   n or Esc: no", style="dim"), markup=False)

    def on_mount(self) -> None:
        """It is seen from the next frame on."""
        self.call_after_refresh(self._seen)

    def _seen(self) -> None:
        self.guarded_until = time.monotonic() + GUARD

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing is done by a key that was meant for something else; to refuse is always right."""
        if action == "answer" and parameters == (True,):
            return time.monotonic() >= self.guarded_until
        return super().check_action(action, parameters)

    def action_answer(self, wanted: bool) -> None:
        """Go, with the answer."""
        self.dismiss(wanted)


T = TypeVar("T")


class PinDialog(ModalScreen[str]):
    """Its result is what was typed, "" for nothing.

    Args:
        said: why it is asked again.
    """

    DEFAULT_CSS = """
    PinDialog { align: center middle; }
    PinDialog #pin-box {
        width: 44; max-width: 100%; height: auto; border: round $warning; padding: 0 1; background: $surface;
    }
    PinDialog Input { padding: 0 1; background: $boost; margin: 1 0; }
    PinDialog #pin-said { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back")]

    def __init__(self, said: str = "") -> None:
        super().__init__()
        self._said = said

    def compose(self) -> ComposeResult:
        """A line that does not show what is typed."""
        with Vertical(id="pin-box") as box:
            box.border_title = "your PIN"
            yield Static(self._said, id="pin-said", markup=False)
            yield Input(password=True, id="pin", compact=True)
            yield Static("enter: decide   esc: decide nothing", markup=False)

    def on_mount(self) -> None:
        """Wait for it."""
        self.query_one("#pin-said").display = bool(self._said)
        line = self.query_one(Input)
        line.cursor_blink = False
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """That is it."""
        event.stop()
        self.dismiss(event.value)

    def action_back(self) -> None:
        """Decide nothing."""
        self.dismiss("")


async def with_pin(app: ScreenPort, call: Callable[[str], Awaitable[T]]) -> T:
    """What `call` returns with the PIN, "" at first; the person is asked where the control plane does.

    Raises:
        PinRequired: nothing was typed.
        PinWrong, PinPaused: no try is left, or none is taken now.
    """
    tries, pin = Tries(), ""
    while True:
        try:
            return await call(pin)
        except (PinRequired, PinWrong) as error:
            pin = await app.push_screen_wait(PinDialog(tries.again(error)))
            if not pin:
                raise PinRequired("nothing was decided: your PIN is needed") from error
