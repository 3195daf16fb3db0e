"""docs/operating.md lists the limits that a user can meet, and no limit is said in two places."""

from __future__ import annotations

import ast
from pathlib import Path

from postroom.protocol import limits
from postroom_a2a import bounds
from tests.docs.pages import ROOT
from tools import limits as document


def test_the_table_of_limits_is_up_to_date() -> None:
    text = document.DOCUMENT.read_text(encoding="utf-8")

    assert document.written(text) == text, "stale; write it with: python -m tools.limits"


def test_no_module_defines_a_limit_of_the_table_again() -> None:
    again = [
        f"{file}: {target.id}"
        for table, folder in ((limits, "src/postroom"), (bounds, "a2a/src"))
        for file in (ROOT / folder).rglob("*.py")
        if file != Path(table.__file__)
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
        and target.id in vars(table)
        and target.id.isupper()
        and target.id[0] != "_"
    ]

    assert again == []


def test_what_travels_in_a_message_of_the_bus_fits_it() -> None:
    assert limits.MAX_ENVELOPE_BYTES + 64 * 1024 < limits.MAX_PAYLOAD
    assert limits.MAX_TASK_BYTES + limits.MAX_TASK_EVENT_BYTES < limits.MAX_PAYLOAD
    assert limits.MAX_EVENTS_BYTES + limits.MAX_EVENTS + 4096 < limits.MAX_PAYLOAD
    assert 2 * limits.MAX_TEXT_ANSWER < limits.MAX_TASK_BYTES
    for answer in (limits.MAX_AGENT_ANSWER, limits.MAX_PAGE_BYTES, limits.MAX_CARDS_BYTES):
        assert answer + 64 * 1024 < limits.MAX_PAYLOAD
    assert limits.MAX_FILES_BYTES * 4 / 3 + limits.MAX_TEMPLATE_BYTES < limits.MAX_TEMPLATE_BODY
    assert limits.INLINE_BYTES < limits.MAX_ENVELOPE_BYTES
    assert limits.MAX_PAYLOAD <= bounds.MAX_PAYLOAD
