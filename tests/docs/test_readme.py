"""README.md as a newcomer follows it: its files saved, its commands typed, in order, with an empty HOME."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.docs.pages import Block, blocks
from tests.docs.shell import Shell, in_checkout

ELSEWHERE = {
    "python3 -m venv .venv": "tools/footprint.py, which .ci/run runs",
    "pip install --require-hashes -r requirements/build.txt -r requirements/demo.txt": (
        "tests/manifest/test_dependencies.py"
    ),
    "pip install --no-deps --no-build-isolation ./a2a .": "tests/manifest/test_release.py, and `make setup`",
    "make demo": "tests/e2e/test_demo.py",
    "DEMO=plain make demo": "tests/e2e/test_demo.py",
    "make demo DIR=path": "tests/e2e/test_demo.py",
    "make demo KEEP=1": "tests/e2e/test_demo.py",
    "make test": "it runs this test",
    "postroom doctor claude-code": "tests/templates",
    "postroom spawn claude-code --workspace ~/src/app": "tests/agents",
    'postroom delegate @claude "make the tests pass" --wait': "tests/agents",
    "postroom attach @claude": "tests/attach",
    "postroom approvals": "tests/cli/test_approvals.py",
    "postroom diff @claude": "tests/workspaces",
    "git -C ~/src/app merge postroom/claude": "tests/agents",
}
"""Commands that are not typed here, and where they are tried."""

WATCHED: dict[str, str] = {
    "postroom audit --follow": "@reviewer",
    "postroom status --watch": "@reviewer",
    "postroom watch": "",
}
"""Commands that go on until Ctrl-C, and what is to be seen first."""

TYPED = {
    "postroom credential add model --host api.example.com": "a secret\n",
    "postroom chat '#demo'": "hello, everybody\n",
}
"""What is typed into commands that read."""

HERE = {"192.0.2.7": "127.0.0.2"}
"""Addresses of the reader's machine, and what stands for them here."""

URL = "http://127.0.0.1:4280"
"""The API, on a machine where nobody else has the usual port."""

SHOWN = {
    'postroom send @echo "are you there?" --wait answered': "you said: ",
    'postroom delegate @helper "How many words are these?" --wait': "counted",
    'postroom delegate @reviewer "Review $PWD/examples" --wait': "Reviewed ",
    "postroom task list --all": "completed",
    'postroom delegate @counter "one two three" --wait': "3 words",
}
"""What some commands must print, so that the page proves more than exit statuses."""


@pytest.fixture
def reader() -> Iterator[Shell]:
    """A terminal in a checkout, for one page."""
    with in_checkout() as shell:
        yield shell


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(180)
def test_every_command_and_file_of_the_readme_works_in_its_order(reader: Shell) -> None:
    seen: set[str] = set()
    for block in blocks("README.md"):
        if block.name:
            (reader.folder / block.name).write_text(block.text, encoding="utf-8")
        for words in typed(block):
            seen.add(words)
            follow(reader, words)

    tables = {*ELSEWHERE, *WATCHED, *TYPED, *SHOWN}
    assert tables <= seen, f"README.md no longer has {tables - seen}"


def typed(block: Block) -> list[str]:
    """The commands of a block; only `console` blocks have any."""
    return [command.words for command in block.commands] if block.language == "console" else []


def follow(reader: Shell, words: str) -> None:
    """Type one command, or leave it to where it is tried."""
    if words in ELSEWHERE:
        return
    command = words
    for there, here in HERE.items():
        command = command.replace(there, here)
    if URL in command:
        running = reader.run("cat ~/.local/state/postroom/server.json")
        command = command.replace(URL, json.loads(running)["url"])
    if words in WATCHED:
        reader.watch(command, WATCHED[words])
        return
    printed = reader.run(command, TYPED.get(words, ""))
    assert SHOWN.get(words, "") in printed, f"{words}: {printed}"
