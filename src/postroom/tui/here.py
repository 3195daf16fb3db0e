"""What the screen can do about a post room of this machine: start it again when it is down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.errors import PostroomError
from postroom.tui.news import Said, trouble

if TYPE_CHECKING:
    from postroom.tui.app import PostroomApp


@dataclass(frozen=True, slots=True)
class Here:
    """A post room of this machine.

    Attributes:
        start: starts it if it does not run, and returns when it is up. Blocking; raises PostroomError.
        command: what starts it in a terminal.
        said: what there is to say as the screen opens, "" for nothing.
    """

    start: Callable[[], object]
    command: str
    said: str = ""


async def start(app: PostroomApp, here: Here) -> None:
    """Start it, and say what comes of it; the link finds it by itself."""
    app.post_message(Said("starting the post room ..."))
    try:
        await app.calls.run(here.start)
    except PostroomError as error:
        app.post_message(trouble(error))
    else:
        app.post_message(Said("the post room is up"))
