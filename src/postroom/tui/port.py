"""What a part of the screen sees of the application that it is in: the post room, what is looked at, and a few acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from postroom.errors import PostroomError
from postroom.tui.news import trouble

if TYPE_CHECKING:
    from textual.dom import DOMNode
    from textual.geometry import Size
    from textual.message import Message
    from textual.screen import Screen

    from postroom.client.http import AsyncClient
    from postroom.tui.news import Target
    from postroom.tui.worker.changes import Review
    from postroom.view.room import Room

P = ParamSpec("P")
R = TypeVar("R")


class ScreenPort(Protocol):
    """The application, for its parts; what goes from part to part is posted (`tui.news`).

    Attributes:
        client: of the post room.
        room: the newest state, None before the first.
        target: what is looked at, None for nothing yet.
        review: what is seen of changes, and said about them.
        pane: the last one that was looked at: `sidebar`, `talk`, `worker`.
        pressed_at: when a key was last pressed, on the monotonic clock.
    """

    client: AsyncClient
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

    def run_worker(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do it beside everything else."""

    async def run_action(self, action: str) -> bool:
        """What a key does."""
        ...


def port_of(part: DOMNode) -> ScreenPort:
    """The application that a part is in."""
    return cast("ScreenPort", part.app)


class ScreenPart:
    """A widget or a screen that asks much of its application; the application itself, too."""

    @property
    def port(self) -> ScreenPort:
        """The application."""
        return port_of(cast("DOMNode", self))

    def run_worker(self, work: Callable[[], Awaitable[Any]], *args: Any, **how: Any) -> Any:
        """As Textual does; an error that can be expected is said above the line where one types, and ends nothing."""
        return cast("DOMNode", super()).run_worker(partial(self._tried, work), *args, **how)

    async def _tried(self, work: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await work()
        except PostroomError as error:
            self.port.post_message(trouble(error))


def started(
    do: Callable[Concatenate[ScreenPort, P], Awaitable[None]],
) -> Callable[Concatenate[ScreenPort, P], None]:
    """The same, which returns at once; an error is said above the line where one types."""

    @wraps(do)
    def start(app: ScreenPort, *args: P.args, **kwargs: P.kwargs) -> None:
        app.run_worker(partial(do, app, *args, **kwargs))

    return start
