"""The demonstration: a post room of its own, and two sandboxed workers in it.

In a terminal `make demo` ends in the screen of Postroom (scene.py). In a pipe, with DEMO=plain or with DIR=path it
prints a transcript: one worker finds the other, has a folder reviewed, and tells the project what came of it.
Everything goes through the command line that a person would use; the state folder is thrown away at the end, unless
`make demo KEEP=1` leaves the post room running.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from lead import ASKS, NOBODY, OUTCOMES
from room import Room, say, scratch_folder

from postroom.client.http import Client
from postroom_a2a.text import printable

HERE = Path(__file__).resolve().parent

DEADLINE = 180.0
"""Seconds for the whole run, which takes a tenth of that unless the machine is busy with other things."""

TO_TELL = 3.0
"""Seconds of these that are kept for `postroom status` if it came to nothing."""

SHOWN = 22
"""Lines of a task that are shown."""


def watch_feed(room: Room) -> None:
    """Print the feed of #demo as it comes, until the last word of `lead`.

    Raises:
        SystemExit: that did not come in time.
    """
    with Client.at(room.state) as client:
        events = client.follow_project("demo")
        alarm = threading.Timer(max(room.left - TO_TELL, 0.0), events.close)
        alarm.start()
        try:
            for event in events:
                nick, text = event.data["from"]["nick"], printable(event.data["text"])
                for line in f"#demo [{nick}] {text}".splitlines():
                    say(f"  {line}")
                if nick == "lead" and is_last_word(text):
                    return
        finally:
            alarm.cancel()
    room.run("status")
    raise SystemExit("demo: no summary came in time")


def is_last_word(text: str) -> bool:
    """Whether nothing follows by itself: `lead` has told what came of the task, or what hinders it."""
    said = text.partition(" ")[2]
    return said.startswith((*OUTCOMES.values(), ASKS)) or text.startswith(NOBODY)


def demonstrate(room: Room, folder: Path, sandbox: list[str]) -> tuple[dict[str, Any], list[Any]]:
    """Everything between `up` and `down`; the task and the workers as they were at the end."""
    values = ["--set", f"folder={folder}"]
    room.run("spawn", str(HERE / "reviewer.toml"), *values, *sandbox)
    room.run("spawn", str(HERE / "lead.toml"), *values, *sandbox)
    watch_feed(room)
    room.run("task", "list", "--all", table=True)
    tasks = room.ask("task", "list", "--all")["tasks"]
    if not tasks:
        raise SystemExit("demo: there is no task")
    task = tasks[0]
    room.run("task", "show", task["id"][:8], lines=SHOWN)
    room.run("audit", "--task", task["id"][:8], "--limit", "3", table=True)
    room.run("agents", table=True)
    room.run("status", table=True)
    return task, room.ask("status")["workers"]


def tell_what_next(state: Path, folder: Path, *, keep: bool) -> None:
    """Print the commands that a newcomer would type now."""
    activate = Path(sys.prefix) / "bin" / "activate"
    near = Path(os.path.relpath(activate))
    print(f"\nnext:\n  . {activate if near.parts[0] == '..' else near}")
    if keep:
        print(f"  export POSTROOM_STATE={shlex.quote(str(state))}")
        print("  postroom status")
        print(f"  postroom delegate @reviewer {shlex.quote(f'Review {folder}')} --wait")
        print("  postroom chat '#demo'")
        print(
            f"  postroom down; rm -r {shlex.quote(str(state.parent))}     # when you have seen enough"
        )
    else:
        print("  postroom spawn examples/echo.toml")
        print("  postroom send @echo 'are you there?' --wait answered")
        print("  make demo KEEP=1     # the same again, and the post room stays for you")
    say('then: README.md, "Your repository in one word" and "Your own agent in one file"')


def in_screen(folder: Path | None) -> bool:
    """Whether a person sits at a terminal that can show the screen, and has not asked for the transcript."""
    plain = os.environ.get("DEMO") == "plain" or folder is not None
    refused = any(os.environ.get(name) for name in ("CI", "POSTROOM_NO_TUI"))
    able = os.environ.get("TERM", "dumb") != "dumb" and shutil.which("git")
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return bool(able) and not plain and not refused and all(each.isatty() for each in streams)


def print_transcript(folder: Path, sandbox: list[str], *, keep: bool) -> int:
    """The transcript; exit status 0 if the task was completed and the summary posted."""
    started = time.monotonic()
    with scratch_folder(keep=keep) as scratch:
        room = Room(scratch / "state", started + DEADLINE)
        with room.up(keep=keep):
            task, workers = demonstrate(room, folder, sandbox)
    took = time.monotonic() - started
    levels = {worker["nick"]: worker["sandbox"]["level"] for worker in workers}
    walls = ", ".join(f"@{nick} {level}" for nick, level in sorted(levels.items()))
    say(f"demo: task {task['state']}, done in {took:.1f} s; sandbox level: {walls}")
    tell_what_next(room.state, folder, keep=keep)
    return 0 if task["state"] == "completed" else 1


def main() -> int:
    """Run the demonstration; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="folder of Python source to review")
    parser.add_argument(
        "--sandbox", default=os.environ.get("SANDBOX", ""), help="provider; default bubblewrap"
    )
    parser.add_argument("--keep", action="store_true", help="leave the post room running")
    chosen = parser.parse_args()
    # So that everything is ended, too, by whoever ends this program.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # noqa: ARG005
    sandbox = ["--sandbox", chosen.sandbox] if chosen.sandbox else []
    if in_screen(chosen.folder):
        from scene import show

        return show(sandbox, keep=chosen.keep)
    folder = (chosen.folder or HERE.parent / "src").resolve()
    if not folder.is_dir():
        parser.error(f"{folder} is no folder")
    if not os.access(folder, os.R_OK | os.X_OK):
        parser.error(f"{folder} cannot be read")
    return print_transcript(folder, sandbox, keep=chosen.keep)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
