"""A bash that keeps its folder and variables from one command to the next, as a reader's terminal does."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import ROOT

DEADLINE = 60.0
"""Seconds that one command may take."""

# It is told the names of three files: the command, its input, its output. `eval` keeps what a command sets.
_LOOP = """
while IFS= read -r order <&3; do
    eval "$(cat "$order/command")" < "$order/input" > "$order/output" 2>&1
    printf '%s\\n' "$?" >&4
done
"""


class Shell:
    """A shell for one page; as a context manager it ends with what it started in the foreground.

    Args:
        folder: working folder at the start.
        env: its environment.
    """

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self._orders = tempfile.TemporaryDirectory(prefix="shell-")
        read_orders, self._tell = os.pipe()
        self._answers, write_answers = os.pipe()
        self._process = subprocess.Popen(
            [
                "bash",
                "--noprofile",
                "--norc",
                "-c",
                f"exec 3<&{read_orders} 4>&{write_answers}\n{_LOOP}",
            ],
            cwd=folder,
            env=env,
            pass_fds=(read_orders, write_answers),
            start_new_session=True,
        )
        os.close(read_orders)
        os.close(write_answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._tell)
        if kind is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE)
        os.close(self._answers)
        self._orders.cleanup()

    def run(self, command: str, given: str = "", *, status: int | None = 0) -> str:
        """Run a command with `given` on its input; what it printed on both outputs.

        Raises:
            AssertionError: it did not end in time, or with another exit status than `status` (None: any).
        """
        order = Path(tempfile.mkdtemp(dir=self._orders.name))
        (order / "command").write_text(command)
        (order / "input").write_text(given)
        os.write(self._tell, f"{order}\n".encode())
        ready, _, _ = select.select([self._answers], [], [], DEADLINE)
        output = order / "output"
        assert ready, f"{command}: did not end in {DEADLINE:.0f} s: {output.read_text()}"
        ended = int(os.read(self._answers, 64))
        assert status in (None, ended), f"{command}: exit status {ended}: {output.read_text()}"
        return output.read_text()

    def watch(self, command: str, shown: str) -> None:
        """Run a command that goes on until Ctrl-C, until a line with `shown` is there; then interrupt it.

        Raises:
            AssertionError: the line did not come in time.
        """
        pid_file, output = Path(self._orders.name) / "pid", Path(self._orders.name) / "watched"
        output.touch()  # the shell makes it only when it begins the command
        self.run(f"(set -m; {command} > {output} 2>&1 & echo $! > {pid_file})")
        pid = int(pid_file.read_text())
        end = time.monotonic() + DEADLINE
        try:
            while shown not in output.read_text():
                assert time.monotonic() < end, f"{command}: printed only {output.read_text()!r}"
                time.sleep(0.05)  # a file, which tells nobody that it grew
        finally:
            os.killpg(pid, signal.SIGINT)


@contextmanager
def in_checkout() -> Generator[Shell]:
    """A terminal in a checkout, with the commands of this environment; no post room is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="postroom-reader-") as scratch:
        home, checkout = Path(scratch) / "home", Path(scratch) / "postroom"
        home.mkdir()
        checkout.mkdir()
        shutil.copytree(ROOT / "examples", checkout / "examples")
        (checkout / ".venv").symlink_to(sys.prefix)
        env = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        with Shell(checkout, {**env, "HOME": str(home), "NO_COLOR": "1"}) as shell:
            try:
                yield shell
            finally:
                shell.run("postroom down", status=None)
