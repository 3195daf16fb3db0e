"""Write the table of limits in docs/operating.md from `postroom.protocol.limits`: `python -m tools.limits`.

A test fails when the document is stale.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from postroom.protocol import limits

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "operating.md"
BEGIN = "<!-- `python -m tools.limits` writes from here on -->\n"
END = "<!-- to here -->\n"

_DOCSTRING = re.compile(r"(?P<unit>[A-Z][a-z]+) of (?P<what>[^:]+?)(: (?P<why>.+))?\.")
_GROUP = re.compile(r"# ── (?P<name>.+) ──")
_UNSHOWN = "; no table shows these"


class Limit(NamedTuple):
    """One limit, as its module documents it; `group` is the heading above it."""

    group: str
    name: str
    value: float
    unit: str
    what: str
    why: str


def documented() -> list[Limit]:
    """All limits of the module.

    Raises:
        ValueError: a docstring does not say "UNIT of WHAT: REASON."
    """
    source = Path(limits.__file__).read_text(encoding="utf-8")
    groups = {
        number: found["name"]
        for number, line in enumerate(source.splitlines(), 1)
        if (found := _GROUP.fullmatch(line)) is not None
    }
    body = ast.parse(source).body
    return [
        _limit(statement.targets[0].id, following, groups)
        for statement, following in pairwise(body)
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and not statement.targets[0].id.startswith("_")
    ]


def _limit(name: str, following: ast.stmt, groups: dict[int, str]) -> Limit:
    text = ""
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        text = " ".join(str(following.value.value).split())
    said = _DOCSTRING.fullmatch(text)
    if said is None:
        raise ValueError(f'the docstring of {name} does not read "UNIT of WHAT: REASON."')
    group = groups[max(line for line in groups if line < following.lineno)]
    return Limit(
        group, name, getattr(limits, name), said["unit"].lower(), said["what"], said["why"] or ""
    )


def written(document: str) -> str:
    """`document` with the table as it is now between its two marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(_lines()) + "\n" + END + after


def _lines() -> Iterator[str]:
    group = ""
    yield from ("", "| at most | of | why |", "| --- | --- | --- |")
    for limit in documented():
        if limit.group.endswith(_UNSHOWN):
            continue
        if limit.group != group:
            group = limit.group
            yield f"| **{group}** | | |"
        yield f"| {_amount(limit)} | {limit.what} | {limit.why or '-'} |"
    yield ""


def _amount(limit: Limit) -> str:
    value = int(limit.value)
    if limit.unit == "bytes":
        for size, unit in ((1024 * 1024, "MiB"), (1024, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
    return f"{value:,} {limit.unit}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
