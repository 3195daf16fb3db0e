"""docs/agents.md as an author of agents follows it: its commands typed in a sandbox, its programs and templates run."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol.template import parse_template
from tests.docs.pages import Block, Command, blocks, matches
from tests.e2e.conftest import DEADLINE, PostRoom, room, until

__all__ = ["room"]

PAGE = "docs/agents.md"
HANDS = """
[worker]
name = "hands"
[workstation]
command = ["python3", "/opt/agent/hands.py"]
files = ["hands.py"]
"""
READER = """
[worker]
name = "reader"
[workstation]
command = ["python3", "/opt/agent/reader.py"]
files = ["reader.py"]
skills = ["read-python-source", "review"]
"""
FILES = {
    "plot.png": b"\x89PNG\0",
    "table.csv": b"day,words\n1,9663\n",  # its SHA-256 begins as on the page
    "result.txt": b"all is well\n",
    "plan.md": b"# Plan\n",
    "test_ok.py": b"def test_ok():\n    pass\n",
}
"""What the commands of the page name, as it lies in the workspace."""


MESSAGE, TASK, BLOB = "5b1f…", "3f0c…", "blob:sha256:6ae8…"
"""On the page: a message that the worker holds, the task that it delegated last, the blob that it stored last."""


class Hands:
    """The worker `hands`: its workspace on this side of the wall, and the two pipes in it."""

    def __init__(self, workspace: Path) -> None:
        until((workspace / "orders").exists)
        self._orders = (workspace / "orders").open("w")
        self._results = os.open(workspace / "results", os.O_RDONLY)
        self._buffer = b""
        self.workspace = workspace
        self.lines: list[dict[str, Any]] = []

    def close(self) -> None:
        """Let go of the pipes."""
        self._orders.close()
        os.close(self._results)

    def type(self, command: str, given: str = "") -> tuple[int, str]:
        """Type a command in the sandbox; its exit status and what it printed."""
        self._orders.write(json.dumps({"command": command, "given": given}) + "\n")
        self._orders.flush()
        while "line" in (record := self._next()):
            self.lines.append(record["line"])
        return record["status"], record["output"]

    def await_line(self, kind: str) -> dict[str, Any]:
        """The next line of a type that Postroom handed the program."""
        while not (found := [line for line in self.lines if line["type"] == kind]):
            self.lines.append(self._next()["line"])
        return found[-1]

    def _next(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            assert select.select([self._results], [], [], DEADLINE)[0], "the worker says nothing"
            self._buffer += os.read(self._results, 1 << 16)
        raw, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(raw)


@pytest.fixture
def hands(room: PostRoom) -> Iterator[Hands]:
    """The worker that types, with a colleague `@reader`, both running."""
    room.up()
    program = (Path(__file__).parent / "hands.py").read_text()
    room.run("spawn", room.template(HANDS, "hands", hands=program))
    room.run("spawn", room.template(READER, "reader", reader=sample("python")))
    (workspace,) = room.state.rglob(f"{room.worker('hands')['uid']}/workspace")
    for name, content in FILES.items():
        (workspace / name).write_bytes(content)
    hands = Hands(workspace)
    try:
        yield hands
    finally:
        hands.close()


def sample(language: str) -> str:
    """The one program of the page in that language."""
    (found,) = [
        block.text for block in blocks(PAGE) if block.language == language and not block.name
    ]
    return found


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(180)
def test_every_command_of_the_page_works_in_a_worker_in_its_order(
    room: PostRoom, hands: Hands
) -> None:
    room.run("delegate", "@hands", "use every command")
    hands.await_line("task")
    room.run("send", "@hands", "is anybody there?")
    names = {MESSAGE: hands.await_line("message")["id"]}
    for block in blocks(PAGE):
        if block.name:  # `helper.toml` and its program
            (room.scratch / block.name).write_text(block.text, encoding="utf-8")
            (hands.workspace / block.name).write_text(block.text, encoding="utf-8")
    for command in (each for block in blocks(PAGE) for each in commands_of(block)):
        outside = command.words.startswith("postroom ")
        if outside:
            words = [
                str(room.scratch / w) if w.endswith(".toml") else w
                for w in shlex.split(command.words)
            ]
            room.run(*words[1:])
        else:
            follow(hands, command, names)


@pytest.mark.requirement("docs-commands-run")
def test_every_template_of_the_page_is_one() -> None:
    templates = [block.text for block in blocks(PAGE) if block.language == "toml"]
    assert len(templates) >= 2
    for text in templates:
        whole = text if "[worker]" in text else HANDS + text
        parse_template(whole)


def commands_of(block: Block) -> list[Command]:
    """The commands of a block; only `console` blocks have any."""
    return block.commands if block.language == "console" else []


def follow(hands: Hands, command: Command, names: dict[str, str]) -> None:
    """Type a command of the page, with what its shortened names stand for, and compare what it prints."""
    words = command.words
    for shortened, name in names.items():
        words = words.replace(shortened, name)
    status, printed = hands.type(words)
    assert status == 0, f"{words}: {printed}"
    for pattern in command.prints:
        assert any(matches(pattern, line) for line in printed.splitlines()), printed
    if stored := re.search(r"blob:sha256:[0-9a-f]{64}", printed):
        names[BLOB] = stored[0]
    if words.startswith("postroom-agent delegate") and (
        given := re.search(r"[0-9a-f]{32}", printed)
    ):
        names[TASK] = given[0]
