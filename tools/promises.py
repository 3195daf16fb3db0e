"""Write docs/promises.md from the manifest in tests/requirements.py, or check that it is up to date.

`python -m tools.promises` writes the document; with `--check` it prints the difference and exits 1 if the
document is stale.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.requirements import REQUIREMENTS, Requirement
from tools.requirement_marks import scan

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "promises.md"
HEADER = """\
# Promises

What Postroom guarantees, where it is explained, and the tests that prove it.
This file is written by `python -m tools.promises` from `tests/requirements.py`; edit that one. What the changelogs say
to be no longer so stands last, under Mends.
"""


def render(requirements: Mapping[str, Requirement], proofs: Mapping[str, Sequence[str]]) -> str:
    """The document's text: one section an area, one table row a promise, each in the manifest's order."""
    sections = [HEADER]
    areas: dict[str, list[Requirement]] = {}
    for each in requirements.values():
        areas.setdefault(each.area, []).append(each)
    for area, members in areas.items():
        rows = [_row(member, proofs.get(member.id, ())) for member in members]
        table = ["| promise | id | explained in | proved by |", "| --- | --- | --- | --- |", *rows]
        sections.append("\n".join([f"## {area}", "", *table, ""]))
    return "\n".join(sections)


def _row(requirement: Requirement, tests: Sequence[str]) -> str:
    proved = ", ".join(_link(test) for test in tests) or "nothing yet"
    cells = (requirement.behaviour, f"`{requirement.id}`", _link(requirement.source), proved)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _link(path: str) -> str:
    """A link that works from inside docs/, named as seen from the top of the repository."""
    target = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
    return f"[{path}]({target})"


def difference(current: str, wanted: str) -> str:
    """What would change, as a unified diff; empty if nothing would."""
    lines = difflib.unified_diff(
        current.splitlines(), wanted.splitlines(), "docs/promises.md", "manifest", lineterm=""
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the document; the exit status says whether it is up to date."""
    parser = argparse.ArgumentParser(description="Write docs/promises.md from the manifest.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if it is stale")
    wanted = render(REQUIREMENTS, scan(ROOT))
    if not parser.parse_args(argv).check:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(wanted, encoding="utf-8")
        return 0
    current = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else ""
    stale = difference(current, wanted)
    if stale:
        print(stale)
        print("docs/promises.md is stale; write it with: python -m tools.promises")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
