"""The demonstration: a post room of its own, two sandboxed workers, one task, its findings live, one summary.

`make demo` runs it; `make demo DIR=path` reviews another folder. Everything goes through the command line that a
person would use; the state folder is thrown away at the end, unless `make demo KEEP=1` leaves the post room running.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from lead import ASKS, NOBODY, OUTCOMES

from postroom.client.http import Client
from postroom_a2a.text import printable

HERE = Path(__file__).resolve().parent

DEADLINE = 55.0
"""Seconds for the whole run."""

TO_END = 12.0
"""Seconds of these that are kept for `postroom down`."""

TO_TELL = 3.0
"""Seconds of these that are kept for `postroom status` if it came to nothing."""

SHOWN = 22
"""Lines of a task that are shown."""


class Room:
    """A post room on a state folder of its own, and the time that is left for it.

    Args:
        state: folder for everything.
        ends: monotonic seconds at which it must be down.
    """

    def __init__(self, state: Path, ends: float) -> None:
        self.state = state
        self.ends = ends

    @property
    def left(self) -> float:
        """Seconds in which to do something before it is time for `down`."""
        return self.ends - TO_END - time.monotonic()

    def run(self, *words: str, lines: int = 0) -> None:
        """Run one command as a person would and show it, the first `lines` of its output if that is given.

        Raises:
            SystemExit: it failed, or took too long.
        """
        print(f"$ postroom {shlex.join(words)}", flush=True)
        shown = self.output(*words).splitlines(keepends=True)
        print("".join(shown[: lines or None]), end="", flush=True)
        if lines and len(shown) > lines:
            print(f"  … and {len(shown) - lines} lines more", flush=True)

    def ask(self, *words: str) -> Any:
        """What a command answers as JSON; raises as `run` does."""
        return json.loads(self.output(*words, "--json"))

    def output(self, *words: str, patience: float = 0.0) -> str:
        """What a command prints, in `patience` seconds, 0 for those that are left; raises as `run` does."""
        command = [sys.executable, "-m", "postroom", "--state", str(self.state), *words]
        try:
            done = subprocess.run(
                command,
                text=True,
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=max(patience or self.left, 0.1),
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"demo: postroom {words[0]} did not end in time") from None
        if done.returncode:
            print(done.stdout, end="", flush=True)
            raise SystemExit(done.returncode)
        return done.stdout

    @contextlib.contextmanager
    def up(self, *, keep: bool) -> Generator[None]:
        """Up on free ports; down at the end, whatever happens, unless it went well and `keep` is set."""
        went_well = False
        try:
            self.run("up", "--detach", "--port", "0", "--nats-port", "0")
            yield
            went_well = True
        finally:
            if (self.state / "server.json").exists() and not (keep and went_well):
                self._down()

    def _down(self) -> None:
        print("$ postroom down", flush=True)
        pid = json.loads((self.state / "server.json").read_text())["pid"]
        try:
            print(self.output("down", patience=TO_END - 2), end="", flush=True)
        except SystemExit:
            # Its server and its workers end with it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise


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
                print(f"  #demo [{nick}] {text}", flush=True)
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
    room.run("task", "list", "--all")
    tasks = room.ask("task", "list", "--all")["tasks"]
    if not tasks:
        raise SystemExit("demo: there is no task")
    task = tasks[0]
    room.run("task", "show", task["id"][:8], lines=SHOWN)
    room.run("audit", "--task", task["id"][:8], "--limit", "3")
    room.run("agents")
    room.run("status")
    return task, room.ask("status")["workers"]


@contextlib.contextmanager
def scratch_folder(*, keep: bool) -> Generator[Path]:
    """A folder for the state, removed at the end unless all went well and it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-demo-"))
    went_well = False
    try:
        yield folder
        went_well = True
    finally:
        if not (keep and went_well):
            shutil.rmtree(folder, ignore_errors=True)


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
        print(
            "  make demo KEEP=1     # the same again, and the post room stays for you to look around"
        )
    print('then: README.md, "Use it" and "Connect your own agent"')


def main() -> int:
    """Run the demonstration; exit status 0 if the task was completed and the summary posted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=HERE.parent / "src", help="folder of Python source to review"
    )
    parser.add_argument(
        "--sandbox", default=os.environ.get("SANDBOX", ""), help="provider; default bubblewrap"
    )
    parser.add_argument("--keep", action="store_true", help="leave the post room running")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if not folder.is_dir():
        parser.error(f"{folder} is no folder")
    if not os.access(folder, os.R_OK | os.X_OK):
        parser.error(f"{folder} cannot be read")
    # So that everything is ended, too, by whoever ends this program.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # noqa: ARG005
    started = time.monotonic()
    with scratch_folder(keep=chosen.keep) as scratch:
        room = Room(scratch / "state", started + DEADLINE)
        with room.up(keep=chosen.keep):
            sandbox = ["--sandbox", chosen.sandbox] if chosen.sandbox else []
            task, workers = demonstrate(room, folder, sandbox)
    took = time.monotonic() - started
    levels = {worker["nick"]: worker["sandbox"]["level"] for worker in workers}
    walls = ", ".join(f"@{nick} {level}" for nick, level in sorted(levels.items()))
    print(f"demo: task {task['state']}, done in {took:.1f} s; sandbox level: {walls}")
    tell_what_next(room.state, folder, keep=chosen.keep)
    return 0 if task["state"] == "completed" else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
