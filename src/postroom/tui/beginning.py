"""The dialog of a repository where no worker works yet: which agent, on what, how far by itself, its first task."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from postroom.errors import PostroomError
from postroom.tui.port import ScreenPart
from postroom.workers.offer import HOW, means, words
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from textual.events import Click

    from postroom.workers.offer import Agent, Offer

GUARD = 0.4
"""Seconds for which Enter does not count: the dialog opens by itself."""

KEYS = "enter start · esc not now · ↑ ↓ move · ← → choose"


class Choice(Static, can_focus=True):
    """One of several, chosen by left and right."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "choose", show=False),
        Binding("right,space", "turn(1)", "choose", show=False),
    ]

    class Turned(Message):
        """Another one is chosen."""

    def __init__(self, names: Sequence[str], *, id: str) -> None:  # noqa: A002 (as Textual calls it)
        super().__init__(id=id, markup=False)
        self._names = [one_line(name, 60) for name in names]
        self.at = 0

    def on_mount(self) -> None:
        """Show the first."""
        self._show()

    def on_focus(self) -> None:
        """It looks so."""
        self._show()

    def on_blur(self) -> None:
        """It looks so."""
        self._show()

    def on_click(self, _: Click) -> None:
        """The next one."""
        self.action_turn(1)

    def action_turn(self, step: int) -> None:
        """Choose another one."""
        self.at = (self.at + step) % len(self._names)
        self._show()
        self.post_message(self.Turned())

    def _show(self) -> None:
        name = self._names[self.at]
        if len(self._names) == 1:
            self.update(Text(name, style="bold" if self.has_focus else ""))
            return
        more = f"  {self.at + 1} of {len(self._names)}"
        chosen = (f"◂ {name} ▸", "bold reverse" if self.has_focus else "bold")
        self.update(Text.assemble(chosen, (more, "dim")))


class Beginning(ScreenPart, ModalScreen[str]):
    """Its result is the line `/spawn ...`, "" for not now.

    Args:
        offered: what there is to choose from, with a folder.
        said: what there is to say above it.
        look: looks again for what there is; raises PostroomError.
    """

    DEFAULT_CSS = """
    Beginning { align: center middle; }
    Beginning #begin-box {
        width: 92%; max-width: 96; height: auto; max-height: 100%; overflow-y: auto;
        border: round $accent; padding: 0 1; background: $surface;
    }
    Beginning.-narrow #begin-box { width: 100%; }
    Beginning .row { height: auto; }
    Beginning .name { width: 10; color: $text-muted; }
    Beginning .row Input, Beginning .row Choice { width: 1fr; }
    Beginning Input { padding: 0 1; background: $boost; }
    Beginning .about { height: auto; padding-left: 10; color: $text-muted; }
    Beginning.-narrow .about { padding-left: 2; }
    Beginning #begin-said { height: auto; color: $text-error; }
    Beginning #begin-first { height: auto; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "not now"),
        Binding("enter", "begin", "start"),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    def __init__(self, offered: Offer, said: str, look: Callable[[], Awaitable[Offer]]) -> None:
        super().__init__()
        self._offered, self._first, self._look = offered, said, look
        self.guarded_until = float("inf")  # until it is seen

    def compose(self) -> ComposeResult:
        """A row for each choice."""
        with Vertical(id="begin-box") as box:
            box.border_title = "an agent for this repository"
            box.border_subtitle = KEYS
            yield Static(self._first, id="begin-first", markup=False)
            with Horizontal(classes="row"):
                yield Static("agent", classes="name")
                yield Choice([agent.title for agent in self._offered.agents], id="begin-agent")
            yield Static(classes="about", id="begin-key", markup=False)
            with Horizontal(classes="row"):
                yield Static("works on", classes="name")
                yield Input(_short(self._offered.folder), id="begin-folder", compact=True)
            with Horizontal(classes="row"):
                yield Static("how far", classes="name")
                yield Choice(list(HOW), id="begin-how")
            yield Static(classes="about", id="begin-means", markup=False)
            with Horizontal(classes="row"):
                yield Static("task", classes="name")
                yield Input(
                    placeholder="what it shall do first; may be empty",
                    id="begin-task",
                    compact=True,
                )
            yield Static(id="begin-said", markup=False)

    def on_mount(self) -> None:
        """The task is what a person types first."""
        self.query_one("#begin-first").display = bool(self._first)
        self.query_one("#begin-said").display = False
        for line in self.query(Input):
            line.cursor_blink = False
        self.query_one("#begin-task").focus()
        self._tell()
        self.call_after_refresh(self._seen)

    def _seen(self) -> None:
        self.guarded_until = time.monotonic() + GUARD

    @property
    def _agent(self) -> Agent:
        return self._offered.agents[self.query_one("#begin-agent", Choice).at]

    @property
    def _how(self) -> str:
        return list(HOW)[self.query_one("#begin-how", Choice).at]

    def _tell(self) -> None:
        """Say what the choices mean."""
        agent = self._agent
        key = f"key: {one_line(agent.key, 300)}"
        if agent.add:
            add = one_line(agent.add, 500)
            key += f"\nto store one, in another terminal:\n{add}\nthen press Enter here; or choose another agent"
        self.query_one("#begin-key", Static).update(key)
        self.query_one("#begin-means", Static).update(one_line(means(agent, self._how), 500))

    def on_choice_turned(self, _: Choice.Turned) -> None:
        """Another one."""
        self._tell()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter starts it from every row."""
        event.stop()
        self.action_begin()

    def action_begin(self) -> None:
        """Start it, unless something is missing."""
        if time.monotonic() < self.guarded_until:
            return
        if self._agent.ready:
            self._begin()
        else:
            self.run_worker(self._begin_with_key, exclusive=True)

    async def _begin_with_key(self) -> None:
        """Start it if its key has been stored since the dialog opened."""
        try:
            found = await self._look()
        except PostroomError as error:
            self._refuse(error.message)
            return
        now = {agent.template: agent for agent in found.agents}
        agents = tuple(now.get(agent.template, agent) for agent in self._offered.agents)
        self._offered = replace(self._offered, agents=agents)
        self._tell()
        if self._agent.ready:
            self._begin()
        else:
            self._refuse(f"{self._agent.title} has no key yet: see above")

    def _begin(self) -> None:
        agent, folder = self._agent, self.query_one("#begin-folder", Input).value.strip()
        place = Path(folder).expanduser() if folder.startswith("~") else Path(folder)
        if not folder or not place.is_dir():
            self._refuse(f"{one_line(folder, 200) or 'nothing'} is not a folder")
        else:
            task = self.query_one("#begin-task", Input).value
            line = words(agent, str(place.absolute()), self._how, task)
            self.dismiss(f"/spawn {shlex.join(line)}")

    def _refuse(self, why: str) -> None:
        said = self.query_one("#begin-said", Static)
        said.update(why)
        said.display = True

    def action_back(self) -> None:
        """Not now."""
        self.dismiss("")


def _short(folder: Path | None) -> str:
    """The folder as people write it."""
    if folder is None:
        return ""
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(folder)
