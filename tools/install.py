"""Install the packages that files of requirements pin, and say how far it is: `python tools/install.py FILE...`.

pip alone is either silent for a minute or prints two hundred lines. This shows one line: in a terminal it is
written over, elsewhere it is printed at the start and at the end.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

_PINNED = re.compile(r"^[\w.-]+==", re.MULTILINE)
_NEXT = re.compile(r"Collecting ([\w.-]+)")
_SAME = "Requirement already satisfied"


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
        number = 0
        for line in pip.stdout or ():
            lines.append(line)
            found = _NEXT.match(line)
            number += found is not None or line.startswith(_SAME)
            if terminal and found is not None:
                print(f"\r\033[Kfetching {number} of {total}: {found[1]}", end="", flush=True)
            elif terminal and line.startswith("Installing collected packages"):
                print("\r\033[Kunpacking and compiling them ...", end="", flush=True)
    if pip.returncode:
        print(f"\n{''.join(lines)}pip failed: is a package index within reach?", file=sys.stderr)
        return pip.returncode
    erase = "\r\033[K" if terminal else ""
    print(f"{erase}installed {total} packages in {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
