"""A post room of its own for a demonstration, used by the command line as a person would use it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

TO_END = 12.0
"""Seconds of its time that are kept for `postroom down`."""


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

    def run(self, *words: str, lines: int = 0, table: bool = False) -> None:
        """Run one command as a person would and show it, the first `lines` of its output if that is given.

        Args:
            table: it fits what it prints to the terminal, if it is given one.

        Raises:
            SystemExit: it failed, or took too long.
        """
        say(f"$ postroom {shlex.join(words)}", more=" \\")
        if table and sys.stdout.isatty():
            done = self._call(words, self.left, None, output=None)
            if done.returncode:
                raise SystemExit(done.returncode)
            return
        shown = self.output(*words).splitlines()
        for line in shown[: lines or None]:
            say(line)
        if lines and len(shown) > lines:
            say(f"  … and {len(shown) - lines} lines more")

    def ask(self, *words: str) -> Any:
        """What a command answers as JSON; raises as `run` does."""
        return json.loads(self.output(*words, "--json"))

    def output(self, *words: str, patience: float = 0.0) -> str:
        """What a command prints, in `patience` seconds, 0 for those that are left; raises as `run` does."""
        done = self._call(words, patience or self.left, None)
        if done.returncode:
            print(done.stdout, end="", flush=True)
            raise SystemExit(done.returncode)
        return done.stdout

    async def quietly(self, *words: str, patience: float) -> None:
        """Run a command behind a screen, which ends with it; SystemExit says what went wrong."""
        child = await asyncio.create_subprocess_exec(
            *self._command(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            output, errors = await asyncio.wait_for(child.communicate(), patience)
        except TimeoutError:
            raise SystemExit(f"demo: postroom {words[0]} did not end in time") from None
        finally:
            if child.returncode is None:
                child.kill()
        if child.returncode:
            said = (errors or output).decode(errors="replace").strip().splitlines()
            raise SystemExit("; ".join(line.strip() for line in said[-2:]) or str(child.returncode))

    def _command(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "postroom", "--state", str(self.state), *words]

    def _call(
        self,
        words: Sequence[str],
        patience: float,
        errors: int | None,
        output: int | None = subprocess.PIPE,
    ) -> subprocess.CompletedProcess[str]:
        """A command that has ended; `errors` and `output` are where its streams go."""
        try:
            return subprocess.run(
                self._command(words),
                text=True,
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=max(patience, 0.1),
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"demo: postroom {words[0]} did not end in time") from None

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


def say(line: str, *, more: str = "") -> None:
    """Print a line; in a terminal that is narrower it goes on below, between words.

    Args:
        more: what stands at the end of a line that goes on: a backslash for a shell.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if len(line) <= width or not width:
        print(line, flush=True)
        return
    indent = " " * (len(line) - len(line.lstrip()))
    wrap = textwrap.TextWrapper(
        width=max(20, width - len(more)),
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    print(f"{more}\n".join(wrap.wrap(line.lstrip())), flush=True)


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
