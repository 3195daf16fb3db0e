"""The policy of a worker for people: each rule, and where it comes from."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from postroom.lines.inputs import visible
from postroom.lines.words import Cell, address, ago
from postroom.protocol.autonomy import Autonomy
from postroom.view.tasks import short
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Policy, SetAutonomy

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
    for each in policy["autonomy"]:
        if each["task"]:
            what = f"{_DONE[each['autonomy']]} in task {short(each['task'])}, until it ends"
            rows.append([_verb(each["autonomy"]), Cell(what), _set(each, now)])
    word, kept = autonomy_of(policy)
    source = template if kept is None else _set(kept, now)
    if word == Autonomy.EDITS:
        rows.append([_verb(word), Cell(_DONE[word]), source])
    last = _verb(word if word == Autonomy.ALL else Autonomy.ASK)
    return [*rows, [last, Cell("everything else", dim=True), source]]


_DONE = {"all": "everything", "edits": "edits of files in its folder", "ask": "everything"}


def autonomy_of(policy: Policy) -> tuple[str, SetAutonomy | None]:
    """How much is done unasked in all turns, and who has set that; None where the template says it."""
    kept = next((each for each in policy["autonomy"] if not each["task"]), None)
    if kept is not None:
        return kept["autonomy"], kept
    return (Autonomy.ALL if policy["autonomous"] else Autonomy.ASK), None


def autonomy_lines(policy: Policy, now: float) -> list[str]:
    """How much it does unasked, and who has set that."""
    word, kept = autonomy_of(policy)
    by = origin(policy) if kept is None else _set(kept, now).text
    name = address(policy["worker"])
    lines = [f"{name}: {word} ({by})"]
    return lines + [
        f"{name}: {each['autonomy']} until task {short(each['task'])} ends ({_set(each, now).text})"
        for each in policy["autonomy"]
        if each["task"]
    ]


def _verb(word: str) -> Cell:
    return Cell("ask", "yellow") if word == Autonomy.ASK else Cell("allow", "green")


def _set(kept: SetAutonomy, now: float) -> Cell:
    return Cell(f"set by {address(kept['by'])} {ago(kept['at'], now)}")


def origin(policy: Policy) -> str:
    """The template of a worker, by the name of its file."""
    name = one_line(PurePath(policy["template"]).name, 80)
    return f"template {name}" if name else "its template"
