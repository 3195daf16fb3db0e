"""The line that a person types in a terminal: edited, with history, and below all that is printed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout

__all__ = ["Prompt", "patch_stdout"]


class Prompt:
    """Reads lines in a thread of its own; what others print while `patch_stdout` is on stands above it.

    Args:
        above: lines that are shown above the one that is typed and change in place, each with its end.
        mark: what stands before the line that is typed.
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
        """What is typed, until Ctrl-D or `close`.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        while not self._closed:
            try:
                # Signals are the main thread's; one that came before the loop ran is seen by `pre_run`.
                yield self._session.prompt(handle_sigint=False, pre_run=self._check)
            except EOFError:
                return

    def refresh(self) -> None:
        """Draw again what stands above; from any thread."""
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
