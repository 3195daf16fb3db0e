"""What all tests of the screen use: a real control plane with workers driven by hand, and the screen on it.

async def test_it(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await coder.asks()
        await until(pilot, lambda: "make deploy" in screen_text(pilot.app))

`shared` stands for the whole run, and every test finds it empty but for its owner. `working` has the one worker
`coder`; `emptied(shared)` and `doing(room, folder, "nick")` make more. A test that stops the server takes `task_room`.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from textual._compositor import Compositor
from textual.app import App
from textual.css.query import NoMatches
from textual.pilot import Pilot

from postroom.client import belonging
from postroom.client.http import AsyncClient
from postroom.tui import link
from postroom.tui.app import PostroomApp
from postroom.tui.needs.bar import NeedsBar
from tests.control.doing import Doing, announced, working
from tests.control.taskroom import SECONDS, TaskRoom, emptied, task_room

__all__ = ["Doing", "announced", "app_on", "doing", "emptied", "screen_text", "until", "working"]

T = TypeVar("T")


def _nothing_written(self: Compositor, **_: Any) -> None:
    """Nothing: no terminal reads it, and it is a third of the work. `screen_text` has every part drawn."""
    self._dirty_regions.clear()


@pytest.fixture(scope="package")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a terminal of a newcomer, whatever the terminal of the tests is; what happens is looked at sooner."""
    for name in ("NO_COLOR", "POSTROOM_NO_TUI", "TEXTUAL", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(link, "PAUSE", 0.1)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if nobody above these tests were an agent, which may not decide."""
    for name in belonging.MARKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(belonging.refuse_agents, "__defaults__", (os.environ, tmp_path / "proc"))


async def doing(
    room: TaskRoom, folder: Path, nick: str, *projects: str, start: bool = True
) -> Doing:
    """One more worker whose agent a test drives; the room is announced in `folder`, too."""
    hand = await room.worker(nick, start=start, projects=projects)
    return Doing(room, hand, announced(room, folder))


@asynccontextmanager
async def app_on(
    where: Doing | Path, *, size: tuple[int, int] = (80, 24), opens: bool = False, **arguments: Any
) -> AsyncGenerator[Pilot[int]]:
    """The screen, of `size` columns and lines, on the room of a worker or of a state folder.

    Args:
        opens: dialogs about what needs the person open by themselves, as they do outside of tests.
        arguments: of `PostroomApp`.
    """
    state = where if isinstance(where, Path) else where.state
    app = PostroomApp(AsyncClient.at(state, ""), **arguments)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NeedsBar, "by_itself", opens)
        patched.setattr(Compositor, "render_update", _nothing_written)
        async with app.run_test(size=size) as pilot:
            yield pilot
    if app.failure is not None:
        raise app.failure


async def until(pilot: Pilot[Any], condition: Callable[[], T], seconds: float = 3 * SECONDS) -> T:
    """What `condition` returns once it is true; it is asked again whenever the screen has done something.

    A widget that is not there yet (`NoMatches`) counts as false.
    """
    ends, rest = time.monotonic() + seconds, 0.01
    while True:
        await pilot.pause(rest)
        rest = min(1.2 * rest, 0.05)
        try:
            found = condition()
        except NoMatches:
            found = None
        if found:
            return found
        assert time.monotonic() < ends, "not in time; the screen shows:\n" + screen_text(pilot.app)


def screen_text(app: App[Any]) -> str:
    """What is shown, a dialog too: one line of text for each line of the screen, without blanks at its end."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
