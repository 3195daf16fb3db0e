"""Install the packages that files of requirements pin, and say how far it is: `python tools/install.py FILE...`.

pip alone is either silent for a minute or prints two hundred lines. This shows one line: in a terminal it is
written over, elsewhere it is printed at the start and at the end.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

_PINNED = re.compile(r"^[\w.-]+==", re.MULTILINE)
_NEXT = re.compile(r"Collecting ([\w.-]+)")
_SAME = "Requirement already satisfied"


class Step:
    """What is done now, on one line of a terminal, and for how long."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._text, self._began = "", time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Begin another step."""
        self._text, self._began = text, time.monotonic()
        self._show()

    def end(self) -> None:
        """Nothing more is shown."""
        self._over.set()
        self._thread.join()

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            self._show()

    def _show(self) -> None:
        seconds = int(time.monotonic() - self._began)
        if self._terminal and self._text:
            since = f" {seconds} s" if seconds > 1 else ""
            print(f"\r\033[K{self._text} ...{since}", end="", flush=True)


def main(files: list[str]) -> int:
    """Run pip over the files; its exit status, after what it printed if it failed."""
    total = sum(len(_PINNED.findall(Path(file).read_text(encoding="utf-8"))) for file in files)
    terminal = sys.stdout.isatty()
    print(f"installing {total} packages", end="" if terminal else " ...\n", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    command += ["--progress-bar", "off", "--require-hashes"]
    for file in files:
        command += ["--requirement", file]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        number, step = 0, Step(terminal)
        for line in pip.stdout or ():
            lines.append(line)
            found = _NEXT.match(line)
            number += found is not None or line.startswith(_SAME)
            if found is not None:
                step.say(f"fetching {number} of {total}: {found[1]}")
            elif line.startswith("Installing collected packages"):
                step.say("unpacking and compiling them")
        step.end()
    if pip.returncode:
        print(f"\n{''.join(lines)}pip failed: is a package index within reach?", file=sys.stderr)
        return pip.returncode
    erase = "\r\033[K" if terminal else ""
    print(f"{erase}installed {total} packages in {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
