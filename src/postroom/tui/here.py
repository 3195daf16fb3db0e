"""What the screen can do about a post room of this machine: start it again, and offer a worker for a repository."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import PostroomError
from postroom.tui.news import Said, Typed, trouble

if TYPE_CHECKING:
    from postroom.tui.port import ScreenPort
    from postroom.view.room import Room
    from postroom.workers.offer import Offer


@dataclass(frozen=True, slots=True)
class Here:
    """A post room of this machine.

    Attributes:
        state: its folder.
        start: starts it if it does not run, and returns when it is up. Blocking; raises PostroomError.
        command: what starts it in a terminal.
        said: what there is to say as the screen opens, "" for nothing.
        offers: as it opens, a worker is offered where none works yet.
    """

    state: Path
    start: Callable[[], object]
    command: str
    said: str = ""
    offers: bool = False


async def start(app: ScreenPort, here: Here) -> None:
    """Start it, and say what comes of it; the link finds it by itself."""
    app.post_message(Said("starting the post room ..."))
    try:
        await asyncio.to_thread(here.start)  # it waits for a process
    except PostroomError as error:
        app.post_message(trouble(error))
    else:
        app.post_message(Said("the post room is up"))


async def offer(app: ScreenPort, here: Here, room: Room, *, asked: bool = False) -> None:
    """Offer a worker for the folder in which the screen was opened.

    Args:
        asked: the person wants that; else nothing is said where workers are there already.
    """

    async def look() -> Offer:
        from postroom.workers.offer import look

        known, workers = await app.client.credentials(), room.status["workers"]
        # It runs git, and looks for programs.
        return await asyncio.to_thread(look, known, workers, here.state, asked=asked)

    try:
        found = await look()
    except PostroomError as error:
        app.post_message(trouble(error))
        return
    said = [each for each in (here.said, found.why) if each]
    if found.folder is None:
        if found.why:
            app.post_message(Said("\n".join(said)))
        return
    if len(app.screen_stack) > 1 or (room.needs and not asked):
        app.post_message(Said("no worker works here yet: /spawn offers one"))
        return
    from postroom.tui.beginning import Beginning

    def chosen(line: str | None) -> None:
        if line:
            app.post_message(Typed(line))

    app.push_screen(Beginning(found, here.said if here.offers else "", look), chosen)
