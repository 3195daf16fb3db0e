"""docs/clients.md as a reader follows it, and its tables as the code has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from postroom.connect.clients import CLIENTS
from postroom.connect.clients.base import Installed
from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Shell
from tests.docs.test_readme import reader

__all__ = ["reader"]

PAGE = "docs/clients.md"
SECTIONS = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", (ROOT / PAGE).read_text(), re.MULTILINE | re.DOTALL)
)


def rows(section: str) -> dict[str, list[str]]:
    """A table of the page, by the client."""
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", SECTIONS[section], re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in found}


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(180)
def test_every_command_of_the_page_works_in_its_order(reader: Shell) -> None:
    reader.run(". .venv/bin/activate")
    home = Path(reader.run("echo ~").strip())
    for block in blocks(PAGE):
        for command in block.commands if block.language == "console" else ():
            reader.run(command.words)

    assert not (home / ".claude").exists()
    assert not (home / ".codex").exists()
    reader.run("postroom down")


def test_the_table_of_files_is_the_truth() -> None:
    home = Path("/home")
    shown = rows("What is written")

    assert list(shown) == list(CLIENTS)
    for name, client in CLIENTS.items():
        written = [
            str(part.path.relative_to(home))
            for part in client.parts(home, Installed(Path("/data/hook")))
        ]
        assert re.findall(r"`(.+?)`", shown[name][1]) == written


def test_the_table_of_versions_is_the_truth() -> None:
    shown = rows("What each client can do")

    assert list(shown) == list(CLIENTS)
    for name, client in CLIENTS.items():
        assert shown[name][0] == ", ".join(client.tried)
