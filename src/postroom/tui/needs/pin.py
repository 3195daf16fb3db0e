"""Asking for the person's PIN, each time that a decision demands it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from postroom.client.answering import Tries
from postroom.errors import PinRequired, PinWrong

if TYPE_CHECKING:
    from postroom.tui.port import ScreenPort

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


async def with_pin(app: ScreenPort, call: Callable[[str], T]) -> T:
    """What `call` returns with the PIN, "" at first; the person is asked where the control plane does.

    Raises:
        PinRequired: nothing was typed.
        PinWrong, PinPaused: no try is left, or none is taken now.
    """
    tries, pin = Tries(), ""
    while True:
        try:
            return await app.calls.run(partial(call, pin))
        except (PinRequired, PinWrong) as error:
            pin = await app.push_screen_wait(PinDialog(tries.again(error)))
            if not pin:
                raise PinRequired("nothing was decided: your PIN is needed") from error
