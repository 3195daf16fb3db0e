"""README.md as a newcomer follows it: its files saved, its commands typed, in order, with an empty HOME."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, Block, blocks
from tests.docs.shell import Shell, in_checkout

ELSEWHERE = {
    "python3 -m venv .venv": "tools/footprint.py, which .ci/run runs",
    "pip install --require-hashes -r requirements/build.txt -r requirements/base.txt": (
        "tests/manifest/test_dependencies.py"
    ),
    "pip install --no-deps --no-build-isolation ./a2a .": "tests/manifest/test_release.py, and `make setup`",
    "make demo": "tests/e2e/test_demo.py",
    "make test": "it runs this test",
    "postroom": "tests/agents/test_one_word.py",
    "postroom doctor claude-code": "tests/templates",
    "postroom spawn claude-code --workspace ~/src/app": "tests/agents",
    'postroom delegate @claude "make the tests pass" --wait': "tests/agents",
    "postroom approvals": "tests/cli/test_approvals.py",
    "postroom diff @claude": "tests/workspaces",
    "postroom connect claude": "tests/cli/test_connect.py",
    "postroom doctor connect": "tests/cli/test_connect.py",
    "postroom task sync @claude": "tests/workspaces/test_syncing.py",
    "postroom task apply @claude --merge": "tests/workspaces/test_taking.py",
}
"""Commands that are not typed here, and where they are tried."""

URL = "http://127.0.0.1:4280"
"""The API, on a machine where nobody else has the usual port."""

SHOWN = {
    'postroom delegate @counter "one two three" --wait': "3 words",
    'postroom send @counter "are you there?" --wait answered': "you said: are you there?",
}
"""What some commands must print, so that the page proves more than exit statuses."""

MOST_WORDS = 1000


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

    tables = {*ELSEWHERE, *SHOWN}
    assert tables <= seen, f"README.md has no {tables - seen}"


def test_the_readme_is_read_in_five_minutes() -> None:
    assert words_of((ROOT / "README.md").read_text(encoding="utf-8")) <= MOST_WORDS


def words_of(text: str) -> int:
    """The words of a page, prose, tables and code blocks alike: what stands between blanks and has a letter or digit.

    The picture and the targets of links are not read, and do not count.
    """
    text = re.sub(r"^!\[.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return sum(any(map(str.isalnum, word)) for word in text.split())


def typed(block: Block) -> list[str]:
    """The commands of a block; only `console` blocks have any."""
    return [command.words for command in block.commands] if block.language == "console" else []


def follow(reader: Shell, words: str) -> None:
    """Type one command, or leave it to where it is tried."""
    if words in ELSEWHERE:
        return
    command = words
    if URL in command:
        running = reader.run("cat ~/.local/state/postroom/server.json")
        command = command.replace(URL, json.loads(running)["url"])
    printed = reader.run(command)
    assert SHOWN.get(words, "") in printed, f"{words}: {printed}"
