"""The line that a person types in a terminal: edited, with history, below everything that is printed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout

__all__ = ["Prompt", "patch_stdout"]


class Prompt:
    """Reads lines in a thread of its own; with `patch_stdout`, other output appears above the line.

    Args:
        above: lines above the typed one that change in place, each with its end.
        mark: the mark before the typed line.
    """

    def __init__(self, above: Callable[[], str], mark: str) -> None:
        self._session: PromptSession[str] = PromptSession(
            lambda: f"{above()}{mark}",
            history=InMemoryHistory(),
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
                yield self._session.prompt(handle_sigint=False, pre_run=self._check)
            except EOFError:
                return

    def refresh(self) -> None:
        """Redraw the lines above; from any thread."""
        self._app.invalidate()

    def close(self) -> None:
        """End `lines`; from any thread."""
        self._closed = True
        loop = self._app.loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(self._check)

    def _check(self) -> None:
        if self._closed and self._app.is_running and not self._app.is_done:
            self._app.exit(exception=EOFError)
