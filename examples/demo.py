"""The demonstration: a post room of its own, two sandboxed workers, one question, one answer, one summary.

`make demo` runs it; `make demo DIR=path` reads another folder. Everything goes through the command line that a
person would use; the state folder is thrown away at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path

from postroom.client.http import Client
from postroom.protocol.text import printable

HERE = Path(__file__).resolve().parent
DEADLINE = 55.0
"""Seconds for the whole run."""


def command_line(state: Path, *words: str) -> list[str]:
    """The command line of Postroom on its own state folder."""
    return [sys.executable, "-m", "postroom", "--state", str(state), *words]


def run(state: Path, *words: str) -> str:
    """Run one command as a person would, show it, return what it printed."""
    print(f"$ postroom {shlex.join(words)}", flush=True)
    done = subprocess.run(
        command_line(state, *words),
        text=True,
        stdout=subprocess.PIPE,
        check=False,
        timeout=DEADLINE,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


@contextlib.contextmanager
def post_room(state: Path) -> Generator[None]:
    """A running post room on free ports."""
    run(state, "up", "--detach", "--port", "0", "--nats-port", "0")
    try:
        yield
    finally:
        run(state, "down")


def watch_feed(state: Path, seconds: float) -> None:
    """Print the feed of #demo as it comes, until the summary of `lead`.

    Raises:
        SystemExit: it did not come within `seconds`.
    """
    with Client.at(state) as client:
        events = client.follow_project("demo")
        alarm = threading.Timer(seconds, events.close)
        alarm.start()
        try:
            for event in events:
                nick, text = event.data["from"]["nick"], printable(event.data["text"])
                print(f"  #demo [{nick}] {text}", flush=True)
                if nick == "lead" and "has read it" in text:
                    return
        finally:
            alarm.cancel()
    raise SystemExit("demo: no summary came in time")


def main() -> int:
    """Run the demonstration; exit status 0 if the summary came."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=HERE.parent / "src", help="folder of Python source to read"
    )
    parser.add_argument(
        "--sandbox", default=os.environ.get("SANDBOX", ""), help="provider; default bubblewrap"
    )
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if not folder.is_dir():
        parser.error(f"{folder} is no folder")
    sandbox = ["--sandbox", chosen.sandbox] if chosen.sandbox else []
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as scratch:
        state = Path(scratch) / "state"
        with post_room(state):
            values = ["--set", f"folder={folder}"]
            run(state, "spawn", str(HERE / "reader.toml"), *values, *sandbox)
            run(state, "spawn", str(HERE / "lead.toml"), *values, *sandbox)
            watch_feed(state, DEADLINE)
            run(state, "status")
            levels = {
                worker["nick"]: worker["sandbox"]["level"]
                for worker in json.loads(
                    subprocess.check_output(command_line(state, "status", "--json"))
                )["workers"]
            }
    took = time.monotonic() - started
    walls = ", ".join(f"@{nick} {level}" for nick, level in sorted(levels.items()))
    print(f"demo: done in {took:.1f} s; sandbox level: {walls}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
