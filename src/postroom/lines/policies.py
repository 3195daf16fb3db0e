"""The policy of a worker for people: each rule, and where it comes from."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from postroom.lines.inputs import visible
from postroom.lines.words import Cell, address, ago
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Policy

POLICY_HEAD = ("RULE", "PATTERN", "FROM")


def policy_rows(policy: Policy, now: float) -> list[list[Cell]]:
    """The rules in a table under `POLICY_HEAD`, in the order in which they count."""
    template = Cell(origin(policy), dim=True)
    rows = [[Cell("deny", "red"), Cell(visible(each)), template] for each in policy["auto_deny"]]
    rows += [
        [Cell("allow", "green"), Cell(visible(each)), template] for each in policy["auto_approve"]
    ]
    rows += [
        [
            Cell("allow", "green"),
            Cell(visible(each["pattern"])),
            Cell(f"added by {address(each['by'])} {ago(each['at'], now)}, kept by the post room"),
        ]
        for each in policy["added"]
    ]
    last = Cell("allow", "green") if policy["autonomous"] else Cell("ask", "yellow")
    return [*rows, [last, Cell("everything else", dim=True), template]]


def origin(policy: Policy) -> str:
    """The template of a worker, by the name of its file."""
    name = one_line(PurePath(policy["template"]).name, 80)
    return f"template {name}" if name else "its template"
