"""The head of the right pane."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.lines.workers import worker_rows
from postroom.view.tasks import NOTHING

WORKER: Any = {
    "uid": "1" * 32,
    "nick": "coder",
    "state": "working",
    "detail": "",
    "sandbox": {"level": "enforced"},
    "template": "coder.toml",
    "workspace": None,
    "unread": 0,
    "open_tasks": 0,
    "last_seen": "2026-01-01T00:00:00.000Z",
    "usage": {**NOTHING, "input_tokens": 100},
    "task": None,
}


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_in_few_lines_what_it_used_is_still_there_and_no_row_is_empty(most: int) -> None:
    found = worker_rows({**WORKER, "detail": "at work"}, 100.0, most)
    assert len(found) <= most
    assert found[0].text.startswith("@coder working")
    assert all(row.text for row in found)
    assert any("used" in row.text for row in found) == (most > 2)
