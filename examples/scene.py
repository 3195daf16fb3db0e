"""The demonstration in the screen: a task for a coding agent, its questions, its change, its branch.

The screen is Postroom's own, with one line on top that says what to try next.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from room import Room, scratch_folder
from textual.app import ComposeResult
from textual.widgets import Static

from postroom.client.http import AsyncClient, Client
from postroom.tui import app as screen
from postroom.tui.news import Said, Snapshot, Target
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.view.room import Room as State

HERE = Path(__file__).resolve().parent
PATIENCE = 60.0
"""Seconds that one command may take."""

A_DAY = 86400.0
"""Seconds after which the demonstration takes no more commands."""

SHOP = {
    ".gitignore": "__pycache__/\n",
    "price.py": '''"""Prices of a shop, in cents."""


def discounted(price, percent):
    """What is left of a price after a discount of so many percent."""
    return price - price * percent // 100
''',
    "test_price.py": '''"""Its tests."""

import unittest

from price import discounted


class Discounts(unittest.TestCase):
    def test_a_tenth(self):
        self.assertEqual(discounted(1000, 10), 900)

    def test_no_price_is_negative(self):
        try:
            left = discounted(1000, 120)
        except ValueError:
            return
        self.assertGreaterEqual(left, 0)
''',
}
"""The repository, with a mistake in it."""

TASK = (
    "Mend price.py: a discount of more than 100 % makes a price negative. Ask me what it shall be then. "
    "@reviewer can review {folder} for you."
)

AGENTS = (
    ("claude-code", "claude", ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")),
    ("codex", "codex", ("OPENAI_API_KEY",)),
)
"""Templates of real coding agents, the program that each needs, and the variables that have its key."""

Spawn = tuple[str, ...]
"""The words of a `postroom spawn`."""


FAILED = "The demonstration could not go on: ctrl-l shows why, q leaves."


def make_shop(folder: Path) -> None:
    """Make the repository."""
    folder.mkdir()
    for name, text in SHOP.items():
        (folder / name).write_text(text, encoding="utf-8")
    me = ("-c", "user.name=demo", "-c", "user.email=demo@example.com")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "The shop")):
        subprocess.run(["git", *me, *words], cwd=folder, check=True)


def installed_agent() -> tuple[str, str] | None:
    """Template and program of a coding agent that is installed and whose key is in the environment."""
    for template, program, variables in AGENTS:
        if shutil.which(program) and any(os.environ.get(name) for name in variables):
            return template, program
    return None


def choose_fixer(ask: Callable[[str], str] = input) -> Spawn:
    """How a real coding agent is started as @fixer, if there is one and the person wants it; else nothing."""
    if found := installed_agent():
        template, program = found
        offer = f"{program} is installed, its key is in your environment. Let it do the task, for some cents? [y/N] "
        if ask(offer).strip().lower() in {"y", "yes"}:
            return ("spawn", template, "--name", "fixer", "--project", "demo", "--store-key")
    return ()


class Scene(screen.PostroomApp):
    """The screen of the demonstration.

    Args:
        steps: commands that bring the workers and give the task, run one after the other behind the screen.
        run: runs one of them; raises SystemExit.
        instead: for a command that may fail, the one that takes its place then.
    """

    CSS_PATH = Path(screen.__file__).with_name("screen.tcss")
    CSS = "#guide { height: auto; max-height: 2; background: $accent; color: $text; padding: 0 1; }"

    def __init__(
        self,
        client: AsyncClient,
        steps: list[tuple[str, ...]],
        run: Callable[..., Awaitable[None]],
        instead: Mapping[tuple[str, ...], tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(client, start=Target("demo"))
        self._steps, self._run_step, self._instead = steps, run, instead or {}
        self._worked = self._failed = False

    def compose(self) -> ComposeResult:
        """The guide above everything."""
        yield Static(advice(None, worked=False), id="guide", markup=False)
        yield from super().compose()

    def on_mount(self) -> None:
        """Begin."""
        self.run_worker(self._play, name="scene")

    async def _play(self) -> None:
        """Bring the workers, give the task."""
        for words in self._steps:
            done = await self._step(words)
            if not done and words in self._instead:
                self.post_message(Said("so the script of the demonstration does the task"))
                # It may have been made, and failed.
                await self._step(("remove", "fixer", "--yes"))
                done = await self._step(self._instead[words])
            if not done:
                self._failed = True
                self.query_one("#guide", Static).update(FAILED)
                return

    async def _step(self, words: tuple[str, ...]) -> bool:
        """Run a command; whether it did what it should. What went wrong is said."""
        shown = shlex.join(words).replace(f"{HERE.parent}/", "")
        self.post_message(Said(f"$ postroom {one_line(shown, 90)}"))
        try:
            await self._run_step(*words, patience=PATIENCE)
        except SystemExit as error:
            self.post_message(Said(one_line(f"postroom {words[0]}: {error}", 300), bad=True))
            return False
        return True

    def on_snapshot(self, event: Snapshot) -> None:
        """Say what can be done now."""
        fixer = event.room.worker("fixer")
        self._worked = self._worked or bool(fixer and fixer["task"])
        said = FAILED if self._failed else advice(event.room, worked=self._worked)
        self.query_one("#guide", Static).update(said)


def advice(room: State | None, *, worked: bool) -> str:
    """What the guide says.

    Args:
        worked: @fixer has had the task.
    """
    fixer = room.worker("fixer") if room is not None else None
    if room is None or fixer is None:
        return "A post room of your own. Two workers start, each behind a wall."
    if room.approvals:
        return "@fixer asks before it acts: n opens it; y allows it, d denies it."
    if room.questions:
        return "@fixer has a question: n opens it; its number or your words, then Enter."
    if fixer["task"] or not worked:
        return "@fixer works on a task of yours: 1, its row and Enter show what it does."
    return "Done. 1, then d on @fixer's row: its change. i types, ? has all keys, q leaves."


@contextlib.contextmanager
def prepared(
    sandbox: Sequence[str] = (),
    *,
    keep: bool = False,
    pause: float = 0.8,
    choose: Callable[[], Spawn] | None = None,
) -> Generator[tuple[Scene, Path]]:
    """The screen on a post room of its own, and the repository; everything is gone afterwards unless `keep`.

    Args:
        pause: seconds between two steps of our script.
        choose: how @fixer is started; our script if it is left out.
    """
    started = time.monotonic()
    with scratch_folder(keep=keep) as scratch:
        folder = scratch / "shop"
        make_shop(folder)
        script = ("spawn", str(HERE / "fixer.toml"), "--set", f"folder={folder}")
        script += ("--set", f"pause={pause}")
        fixer = (choose() if choose is not None else ()) or script
        room = Room(scratch / "state", started + A_DAY)
        with room.up(keep=keep):
            rest = ("--workspace", str(folder), *sandbox)
            steps = [
                ("spawn", str(HERE / "reviewer.toml"), "--set", f"folder={folder}", *sandbox),
                (*fixer, *rest),
                ("delegate", "@fixer", TASK.format(folder=folder)),
            ]
            # A coding agent that cannot be started here shall not be the end of it.
            instead = {(*fixer, *rest): (*script, *rest)} if fixer != script else {}
            yield Scene(AsyncClient.at(room.state), steps, room.quietly, instead), folder


def show(sandbox: Sequence[str], *, keep: bool) -> int:
    """Run the demonstration until the person leaves; exit status 0 if the screen ended as it should."""
    with prepared(sandbox, keep=keep, choose=choose_fixer) as (scene, folder):
        scene.run()
        said = what_happened(folder.parent / "state")
        if not keep:
            print("demo: the post room of the demonstration ends with its screen; KEEP=1 keeps it")
    print("\n".join(said))
    if scene.failure is not None:
        print(f"demo: the screen failed: {one_line(repr(scene.failure), 300)}", file=sys.stderr)
    tell_next(folder.parent / "state", keep=keep)
    return scene.return_code or 0


def what_happened(state: Path) -> list[str]:
    """What the person has seen, in lines."""
    lines = ["demo: what happened"]
    with Client.at(state) as client:
        tasks = client.tasks(limit=50)
        approvals = client.approvals(state="all", limit=100)
    for task in reversed(tasks):
        who = f"@{task['worker']['nick']} {task['state']}"
        lines.append(f"  {who}: {one_line(task['text'], 60)}")
    for one in reversed(approvals):
        answer = one["answer"]
        if answer is not None and answer["channel"] != "policy":
            lines.append(f"  you {answer['decision']} {one['tool']}: {one_line(one['title'], 60)}")
    return lines


def tell_next(state: Path, *, keep: bool) -> None:
    """Print what a newcomer would type now."""
    activate = Path(os.path.relpath(Path(sys.prefix) / "bin" / "activate"))
    print(f"\nnext:\n  . {activate}")
    if keep:
        print(f"  export POSTROOM_STATE={shlex.quote(str(state))}")
        print("  postroom                                   # the screen again")
        print(f"  postroom down; rm -r {shlex.quote(str(state.parent))}")
    else:
        print("  postroom doctor claude-code                # or codex, gemini, opencode, goose")
        print("  postroom spawn claude-code --workspace .   # and then: postroom")
    print('then: README.md, "Your repository in one word"')
