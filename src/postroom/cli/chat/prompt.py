"""The line that a person types in a terminal: edited, with history, below everything that is printed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.layout.processors import (
    ConditionalProcessor,
    Processor,
    Transformation,
    TransformationInput,
)
from prompt_toolkit.patch_stdout import patch_stdout

__all__ = ["Prompt", "patch_stdout"]


class _Unseen(Processor):
    """Shows nothing of a line, not even how long it is."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        del transformation_input
        return Transformation([], source_to_display=lambda _: 0, display_to_source=lambda _: 0)


class _History(InMemoryHistory):
    """The lines that were typed, but for those that must not be seen."""

    def __init__(self, hidden: Callable[[], bool]) -> None:
        super().__init__()
        self._hidden = hidden

    def append_string(self, string: str) -> None:
        if not self._hidden():
            super().append_string(string)


class Prompt:
    """Reads lines in a thread of its own; with `patch_stdout`, other output appears above the line.

    Args:
        above: lines above the typed one that change in place, each with its end.
        mark: the mark before the typed line.
    """

    def __init__(self, above: Callable[[], str], mark: str) -> None:
        self._secret = ""
        self._kept = ""
        self._session: PromptSession[str] = PromptSession(
            lambda: self._secret or f"{above()}{mark}",
            history=_History(lambda: bool(self._secret)),
            input_processors=[
                ConditionalProcessor(_Unseen(), Condition(lambda: bool(self._secret)))
            ],
            erase_when_done=True,
            reserve_space_for_menu=0,
        )
        self._closed = False

    @property
    def _app(self) -> Application[str]:
        return self._session.app

    def lines(self) -> Iterator[str]:
        """The typed lines, until Ctrl-D or `close`.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        while not self._closed:
            try:
                # The main thread gets the signals; `pre_run` sees one that came before the loop ran.
                kept = self._take_kept()
                line = self._session.prompt(default=kept, handle_sigint=False, pre_run=self._check)
                self._secret = ""  # it was one line
                yield line
            except EOFError:
                return

    @contextmanager
    def unseen(self, mark: str) -> Generator[None]:
        """The next line is typed behind `mark` instead, is not shown and not kept; from any thread.

        What stands in the line is put aside until then.
        """
        self._secret = mark
        self._call(self._put_aside)
        try:
            yield
        finally:
            self._secret = ""
            self.refresh()

    def _put_aside(self) -> None:
        buffer = self._session.default_buffer
        self._kept = buffer.text
        buffer.reset()
        self._app.invalidate()

    def _take_kept(self) -> str:
        kept, self._kept = self._kept, ""
        return kept

    def _call(self, step: Callable[[], None]) -> None:
        """Have a step done where the line is edited, if one is."""
        loop = self._app.loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(step)

    def refresh(self) -> None:
        """Redraw the lines above; from any thread."""
        self._app.invalidate()

    def close(self) -> None:
        """End `lines`; from any thread."""
        self._closed = True
        self._call(self._check)

    def _check(self) -> None:
        if self._closed and self._app.is_running and not self._app.is_done:
            self._app.exit(exception=EOFError)
