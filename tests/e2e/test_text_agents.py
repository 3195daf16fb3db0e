"""The shell agent and the coding agent of docs/agents.md, run as they stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom, running_room

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"
CRITIC = """
[worker]
name = "critic"
[workstation]
command = ["sed", "s/^/found in: /"]
adapter = "text"
skills = ["review"]
"""
LEAD = """
[worker]
name = "lead"
[workstation]
command = ["sh", "/opt/agent/lead.sh"]
adapter = "text"
files = ["lead.sh"]
"""
CLAUDE = """#!/bin/sh
test "$1" = -p || exit 2
request=$(cat)
printf 'You said:\\n\\n%s\\n\\n' "$request"
printf 'I asked %s with %s.\\n' "$ANTHROPIC_BASE_URL" "$ANTHROPIC_API_KEY"
postroom-agent whoami
"""
"""Behaves as a coding agent does: it reads to the end, and prints paragraphs."""


def block(language: str, holding: str) -> str:
    """The one block of the document in that language with those words."""
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (found,) = [each for each in blocks if holding in each]
    return found


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    with running_room() as room:
        yield room


def delegated(room: PostRoom, nick: str, text: str) -> str:
    """The result of a task."""
    said = room.run("delegate", nick, text, "--wait", "--timeout", "35", "--json")
    (artifact,) = json.loads(said.splitlines()[-1])["artifacts"]
    return str(artifact["text"])


@pytest.mark.requirement("text-controls-stripped")
@pytest.mark.requirement("task-kill-requester-told")
def test_the_shell_agent_of_the_document_gives_each_of_three_tasks_its_own_answer(
    room: PostRoom,
) -> None:
    (room.scratch / "lead").mkdir()
    (room.scratch / "lead" / "lead.sh").write_text(block("sh", "delegate --skill"))
    room.run("spawn", room.template(LEAD, "lead"))
    room.run("spawn", room.template(CRITIC, "critic"))

    for number in range(3):
        request = f"task {number}\nsecond line of {number}\nthird line of {number}"
        found = "\n".join(f"found in: {line}" for line in request.splitlines())
        assert delegated(room, "lead", request) == found


@pytest.mark.requirement("task-kill-requester-told")
def test_a_coding_agent_runs_by_the_template_of_the_document(room: PostRoom) -> None:
    programs = room.scratch / "claude-code"
    (programs / "bin").mkdir(parents=True)
    (programs / "bin" / "claude").write_text(CLAUDE)
    (programs / "bin" / "claude").chmod(0o755)
    words = ("--host", "api.anthropic.com", "--header", "x-api-key: {secret}")
    room.run("credential", "add", "anthropic", *words, given="sk-outside\n")
    template = room.template(block("toml", 'command = ["claude"'), "coder")
    room.run("spawn", template, "--set", f"programs={programs}")

    for number in range(3):
        request = f"Fix number {number}.\n\nThen say what you did."
        answer = delegated(room, "coder", request)
        assert answer.startswith(f"You said:\n\n{request}\n\nI asked http://127.0.0.1:")
        assert "/https/api.anthropic.com with kept-outside.\n@coder " in answer
