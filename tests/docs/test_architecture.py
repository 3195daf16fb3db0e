"""docs/architecture.md says what is there: its pictures are drawn from their steps, and the files it names exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from tests.manifest.headings import anchors
from tools import pictures

TEXT = pictures.DOCUMENT.read_text(encoding="utf-8")

_FILE = re.compile(r"`([a-z0-9_]+(?:/[a-z0-9_]+)*(?:\.py|/))`")
"""A module or a folder of ours in backticks: `mail/office.py`, `cli/commands/`."""

BANNED = {
    *("house", "building", "crew", "seat", "visit", "herald", "judge", "hindrance", "yellowpages"),
    *("mailroom", "passage", "conduct", "threshold", "roost", "cargo", "passport"),
}
"""Words that stand for nothing in the vocabulary, and once stood for something in the code."""

_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)]+))?\)")


@pytest.mark.parametrize("name", list(pictures.PATHS))
def test_a_committed_picture_is_the_one_that_its_steps_draw(name: str) -> None:
    drawn = (ROOT / "docs" / f"{name}.svg").read_text(encoding="utf-8")

    assert drawn == pictures.picture(pictures.PATHS[name]), "draw it: python -m tools.pictures"


def test_the_tables_of_steps_are_up_to_date() -> None:
    assert pictures.written(TEXT) == TEXT, "write them: python -m tools.pictures"


def test_each_step_names_modules_that_are_there() -> None:
    modules = [
        module for steps in pictures.PATHS.values() for step in steps for module in step.modules
    ]

    assert [module for module in modules if not pictures.file_of(module).is_file()] == []


def test_the_document_names_only_files_of_the_source_that_are_there() -> None:
    named = {name for name in _FILE.findall(TEXT) if name.endswith(".py") or "/" in name[:-1]}
    ours = {name for name in named if not name.startswith(("blobs/", "src/", "a2a/"))}

    assert len(ours) > 60
    assert sorted(name for name in ours if not pictures.file_of(name).exists()) == []


def test_every_link_of_our_pages_leads_to_a_file_and_a_heading() -> None:
    broken: list[str] = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / target) if target else page
            if "://" in target or (file.exists() and not anchor):
                continue
            if not file.is_file() or anchor not in anchors(file.read_text(encoding="utf-8")):
                broken.append(f"{page.name}: {target}#{anchor}")

    assert broken == []


def test_the_vocabulary_is_in_order_and_says_each_word_once() -> None:
    section = TEXT.partition("## Vocabulary")[2].partition("\n## ")[0]
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", section, re.MULTILINE)

    assert len(words) > 50
    assert words == sorted(set(words), key=str.lower)


def test_no_module_and_no_class_has_a_name_from_outside_the_vocabulary() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "a2a" / "src").rglob("*.py")]
    modules = {word for path in sources for word in path.stem.split("_")}
    classes = {
        word.lower()
        for path in sources
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        for word in re.findall(r"[A-Z][a-z]+", name)
    }

    assert sorted(BANNED & (modules | classes)) == []
