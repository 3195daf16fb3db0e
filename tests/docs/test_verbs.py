"""docs/agents.md names what the table of verbs has: each line with its fields, each route, each command."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from postroom.client.conversation import OwnTask
from postroom.protocol.verbs import VERBS, TaskAction

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")

SAID_ONCE = {"ref", "task", "parts"}
"""Fields that the page explains once for several lines."""


def rows() -> list[tuple[str, str]]:
    """First and second cell of each row of a table."""
    return re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def written() -> dict[str, set[str]]:
    """The fields of each line that a program may write, as the page has them."""
    tables = re.findall(r"\| line you write \| fields \|\n\|.*\n((?:\|.*\n)+)", PAGE)
    found: dict[str, set[str]] = {}
    for table in tables:
        for names, fields in re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE):
            for name in quoted(names):
                found.setdefault(name, set()).update(quoted(fields))
    return found


def test_the_page_names_every_line_that_an_agent_may_write_with_its_fields() -> None:
    lines = {name: action for name, action in VERBS.items() if action.verb.line}
    page = written()

    for name, action in lines.items():
        fields = {param.name for param in action.verb.params} - SAID_ONCE
        missing = fields - page[name]
        assert not missing, f"{name}: {missing}"


def test_the_page_names_the_routes_of_the_local_api_and_no_other() -> None:
    found = set()
    for cell, _ in rows():
        routes = [each for each in quoted(cell) if re.match(r"[A-Z]+ /v1/|/\w+$", each)]
        if not routes or not re.match(r"[A-Z]+ /v1/", routes[0]):
            continue
        first = routes[0].replace("{id}", "{task}")
        found |= {first, *(first[: first.rindex("/")] + each for each in routes[1:])}

    assert found == {action.verb.route for action in VERBS.values()} - {""}


def test_the_page_names_every_command_of_an_agent() -> None:
    for action in VERBS.values():
        command = action.verb.command
        assert re.search(rf"(postroom-agent |`){command}\b", PAGE), command


@pytest.mark.requirement("agent-library")
def test_a_task_is_reported_by_the_same_words_in_lines_shell_and_python() -> None:
    verbs = [action.verb for action in get_args(TaskAction)]
    # What was canceled a program says only in lines: in Python the cancel has interrupted its handler already.
    said = {verb.name for verb in verbs if verb.command}

    assert said == {"update", "artifact", "complete", "fail", "reject", "ask", "ask_auth"}
    for verb in verbs:
        assert verb.route == f"POST /v1/tasks/{{task}}/{verb.name}"
        assert verb.command in ("", verb.name.replace("_", "-"))
    methods = {
        name
        for name, value in vars(OwnTask).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }
    assert methods - {"run"} == said
