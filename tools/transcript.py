"""Write what `make demo` prints into docs/demo.md: `python -m tools.transcript`.

Names of folders and long lists are shortened. `outline` is what stays the same from run to run: a test compares the
outline of the page with that of a run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "demo.md"
MARK = "<!-- made by: python -m tools.transcript -->\n```text\n"
END = "```\n"
WIDTH = 132
"""Columns of the page's block; longer lines end with `…`."""

_FOUND = re.compile(r"(#demo \[lead\] @reviewer found|artifact findings|working: reading|\| ).*")
_CHANGING = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}\b|\d[\d.:]*")
_TAKEN = 3
"""Lines of a run of findings that are shown."""


def shorten(printed: str) -> str:
    """The page's text: without this machine's folders, this checkout's commit, and the many findings."""
    text = printed.replace(f"{ROOT}/", "").replace("\t", " ")
    for length in range(len(str(ROOT)), 3, -1):  # a column may have cut it off
        text = text.replace(f"{ROOT}"[:length] + "…", "src…")
    text = re.sub(r"\S*/postroom-demo-\w+", "/tmp/postroom-demo", text)  # noqa: S108 - words for a page
    text = re.sub(r"^(post room \S+) \([0-9a-f]+\)", r"\1", text, flags=re.MULTILINE)
    lines: list[str] = []
    run = 0
    for line in text.splitlines():
        run = run + 1 if "] @reviewer found " in line else 0
        if run <= _TAKEN:
            lines.append(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…")
        elif run == _TAKEN + 1:
            lines.append("  …")
    return "\n".join(lines).rstrip() + "\n"


def outline(text: str) -> list[str]:
    """The lines of a transcript with numbers, ids, columns' widths and findings taken out, each only once in a row.

    How often a reviewer says how far it is depends on the machine, and so does what a long list shows behind that. So
    what begins so counts once for each command, and what `task show` has behind it is left out.
    """
    outlines: list[str] = []
    told: set[str] = set()
    going = False
    for line in text.splitlines():
        if line.startswith("$ "):
            told.clear()
            going = False
        if going:
            continue
        going = "working: reading" in line
        plain = _FOUND.sub(r"\1 …", line.rstrip("…"))
        counted = plain.endswith(" …")
        plain = " ".join(_CHANGING.sub("0", plain).split())[:60]
        if plain == "…" or plain in outlines[-1:] or plain in told:
            continue
        if counted:
            told.add(plain)
        outlines.append(plain)
    return outlines


def shown() -> str:
    """The transcript that the page has."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[2].partition(END)[0]


def main() -> int:
    """Run the demonstration and write the page; the exit status of the demonstration."""
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if done.returncode:
        return done.returncode
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(MARK)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{MARK}{shorten(done.stdout)}{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
