"""What a part of the screen sees of the application that it is in: the post room, what is looked at, and a few acts."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.dom import DOMNode
    from textual.geometry import Size
    from textual.message import Message
    from textual.screen import Screen

    from postroom.client.http import Client
    from postroom.tui.calls import Calls
    from postroom.tui.news import Target
    from postroom.tui.worker.changes import Review
    from postroom.view.room import Room

R = TypeVar("R")


class ScreenPort(Protocol):
    """The application, for its parts; what goes from part to part is posted (`tui.news`).

    Attributes:
        client: of the post room; its calls block, so `calls` runs them.
        room: the newest state, None before the first.
        target: what is looked at, None for nothing yet.
        review: what is seen of changes, and said about them.
        pane: the last one that was looked at: `sidebar`, `talk`, `worker`.
        pressed_at: when a key was last pressed, on the monotonic clock.
    """

    client: Client
    calls: Calls
    room: Room | None
    target: Target | None
    review: Review
    pane: str
    pressed_at: float

    @property
    def size(self) -> Size:
        """Of the terminal."""
        ...

    @property
    def screen_stack(self) -> list[Screen[Any]]:
        """The panes, and what is shown over them."""
        ...

    def choose(self, target: Target) -> None:
        """Look at something else."""

    def look(self, pane: str) -> None:
        """Show a pane, where not all fit, and focus it."""

    def zoom(self, pane: str) -> None:
        """Show that pane alone, over the whole width; where it is so, all that fit again."""

    def begin(self, text: str) -> None:
        """Type a command whose beginning stands there."""

    def renew(self) -> None:
        """Fetch the state soon: something was done that the post room tells nobody."""

    def post_message(self, message: Message) -> bool:
        """Tell the application."""
        ...

    def push_screen(self, screen: Screen[R], callback: Callable[[R | None], None] = ...) -> Any:
        """Show something over the panes; `callback` takes its result."""

    def push_screen_wait(self, screen: Screen[R]) -> Awaitable[R]:
        """The same, and wait for its result; in a worker alone."""
        ...

    def run_worker(self, work: Awaitable[Any]) -> Any:
        """Do it beside everything else."""

    async def run_action(self, action: str) -> bool:
        """What a key does."""
        ...


def port_of(part: DOMNode) -> ScreenPort:
    """The application that a part is in."""
    return cast("ScreenPort", part.app)
