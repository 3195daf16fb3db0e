"""The guides as a reader follows them: their files saved, their commands typed, and what they show compared."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.pages import Block, Command, blocks, matches
from tests.docs.shell import Shell
from tests.docs.test_readme import reader

__all__ = ["reader"]

ELSEWHERE = {
    "git pull": "there is no newer version",
    "pip install ./a2a .": "tests/manifest/test_release.py, and tools/footprint.py",
    "postroom spawn claude-code --workspace ~/src/app": "tests/docs/test_coding_agents.py",
    'postroom delegate @claude "make the tests pass" --wait': "tests/docs/test_coding_agents.py",
    "postroom diff @claude": "tests/docs/test_coding_agents.py",
    "postroom task apply @claude --merge": "tests/docs/test_coding_agents.py",
    "systemctl --user enable --now postroom": "tests/e2e/test_settings.py runs the unit's command",
    "loginctl enable-linger": "there is no service manager",
}
"""Commands that are not typed here, and why, or where they are tried."""

TYPED = {"postroom credential add": "a secret\n"}
"""What is typed into a command that begins so."""

TASK = "3f0c…"
"""On a page: the task that was delegated last."""

URL = "http://127.0.0.1:4280"
"""On a page: the API, on a machine where nobody else has the usual port."""

PROGRAMS = "/opt/claude"
"""On a page: the folder in which a coding agent is installed."""

WATCHED = {
    "postroom audit --follow": "@reviewer",
    "postroom status --watch": "@reviewer",
    "postroom watch": "",
}
"""Commands that go on until Ctrl-C, and what is to be seen first."""

HERE = {"192.0.2.7": "127.0.0.2"}
"""Addresses of the reader's machine, and what stands for them here."""

CLAUDE = '#!/bin/sh\nread -r request\necho "I was asked: $request"\n'


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "page",
    [
        "docs/first-worker.md",
        "docs/terminal.md",
        "docs/messages.md",
        "docs/mcp.md",
        pytest.param("docs/a2a.md", marks=pytest.mark.slow),
        pytest.param("docs/howto.md", marks=pytest.mark.slow),
    ],
)
def test_every_command_and_file_of_a_guide_works_in_its_order(reader: Shell, page: str) -> None:
    reader.run(". .venv/bin/activate")
    programs = reader.folder / "claude"
    (programs / "bin").mkdir(parents=True)
    (programs / "bin" / "claude").write_text(CLAUDE)
    (programs / "bin" / "claude").chmod(0o755)
    for block in blocks("docs/agents.md"):  # `helper`, which the guides go on with
        if block.name:
            save(reader.folder, block, programs)
    task, section, url = "", blocks(page)[0].section, URL
    for block in blocks(page):
        if (
            block.section != section
        ):  # its reader has a post room, whatever the section before has ended
            section = block.section
            reader.run("postroom up --detach", status=None)
            url = where(reader)
        if block.name:
            save(reader.folder, block, programs)
        for command in block.commands if block.language == "console" else []:
            if command.words in ELSEWHERE:
                continue
            printed = follow(reader, command, task, url)
            if command.words.startswith("postroom up"):
                url = where(reader)
            if command.words.startswith("postroom delegate"):
                found = re.search(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}\b", printed)
                task = found[0] if found else ""


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(180)
def test_operating_in_ten_minutes_works_in_its_order(reader: Shell) -> None:
    reader.run(". .venv/bin/activate")
    seen: set[str] = set()
    for block in blocks("docs/operating.md"):
        for command in block.commands if block.section == "In ten minutes" else []:
            seen.add(command.words)
            if command.words in WATCHED:
                reader.watch(command.words, WATCHED[command.words])
                continue
            words = command.words
            for there, here in HERE.items():
                words = words.replace(there, here)
            follow(reader, replace(command, words=words), "", URL)
    assert set(WATCHED) <= seen


def where(reader: Shell) -> str:
    """The address of the API."""
    return json.loads(reader.run("cat ~/.local/state/postroom/server.json"))["url"]


def save(folder: Path, block: Block, programs: Path) -> None:
    """Save a file of the page where the reader is."""
    (folder / block.name).write_text(block.text.replace(PROGRAMS, str(programs)), encoding="utf-8")


def follow(reader: Shell, command: Command, task: str, url: str) -> str:
    """Type a command, and find each line that the page shows below it in what it prints."""
    given = next((text for words, text in TYPED.items() if command.words.startswith(words)), "")
    printed = reader.run(command.words.replace(TASK, task).replace(URL, url), given)
    for shown in command.prints:
        lines = printed.splitlines()
        assert any(matches(shown, line) for line in lines), f"{command.words}: {printed}"
    return printed
