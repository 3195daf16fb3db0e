"""A dialog that says what will happen, and does it at one key."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from postroom_a2a.text import one_line

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
