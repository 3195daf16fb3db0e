"""The manifest of promises and the tests that prove them agree, in both directions."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.manifest.headings import anchors
from tests.requirements import REQUIREMENTS, Requirement, by_id
from tools import promises
from tools.requirement_marks import marks_in, scan

ROOT = Path(__file__).resolve().parents[2]
MARKS = cache(scan)
"""What is marked where: the whole tree of tests is parsed once."""
CHANGELOGS = ("CHANGELOG.md", "a2a/CHANGELOG.md")
SAMPLE = Requirement("noun-verb", "Area", "README.md#limits", "Something | holds.")


@pytest.mark.requirement("manifest-promises-tested")
def test_every_marked_id_is_a_promise_of_the_manifest() -> None:
    unknown = {
        identifier: tests
        for identifier, tests in MARKS(ROOT).items()
        if identifier not in REQUIREMENTS
    }

    assert unknown == {}


@pytest.mark.requirement("manifest-promises-tested")
def test_every_promise_is_proved_by_a_test() -> None:
    unproved = sorted(REQUIREMENTS.keys() - MARKS(ROOT).keys())

    assert unproved == []


@pytest.mark.requirement("manifest-promises-tested")
def test_every_heading_named_as_a_source_exists() -> None:
    sources = {promise.source for promise in REQUIREMENTS.values()}
    missing = [source for source in sorted(sources) if not _heading_exists(source)]

    assert missing == []


@pytest.mark.requirement("manifest-promises-tested")
@pytest.mark.parametrize("changelog", CHANGELOGS)
def test_all_that_a_changelog_says_to_be_no_longer_so_is_a_mend_with_a_test(changelog: str) -> None:
    said = " ".join((ROOT / changelog).read_text(encoding="utf-8").split())
    mends = [each for each in REQUIREMENTS.values() if each.source.startswith(f"{changelog}#")]

    changed = [each.id for each in mends if each.behaviour not in said]
    for each in mends:
        said = said.replace(each.behaviour, "")
    unlisted = [said[max(0, at - 80) : at + 80] for at in _places(said)]

    assert (changed, unlisted) == ([], [])


def _places(text: str) -> list[int]:
    words = re.finditer(r"\b(?:no longer|any longer|any more)\b", text, re.IGNORECASE)
    return [match.start() for match in words]


def test_a_mend_has_the_words_of_a_changelog() -> None:
    mends = [each for each in REQUIREMENTS.values() if each.kind == "mend"]

    assert mends
    assert {each.source.partition("#")[0] for each in mends} == set(CHANGELOGS)
    assert all("no longer" in each.behaviour for each in mends)


def _heading_exists(source: str) -> bool:
    name, _, anchor = source.partition("#")
    document = ROOT / name
    return document.is_file() and anchor in anchors(document.read_text(encoding="utf-8"))


@pytest.mark.requirement("manifest-promises-tested")
def test_the_document_of_promises_is_up_to_date() -> None:
    wanted = promises.render(REQUIREMENTS, MARKS(ROOT))

    assert promises.DOCUMENT.read_text(encoding="utf-8") == wanted


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.requirement("a-b")\ndef test_it(): ...',
        'pytestmark = [pytest.mark.anyio, pytest.mark.requirement("a-b")]',
        'CASES = [pytest.param(1, marks=pytest.mark.requirement("a-b"))]',
        'from pytest import mark\n@mark.requirement("a-b")\nclass TestIt: ...',
    ],
    ids=["decorator", "pytestmark", "param", "bare mark"],
)
def test_a_mark_is_found_wherever_pytest_accepts_one(source: str) -> None:
    assert list(marks_in(source)) == ["a-b"]


def test_a_mark_may_name_several_promises() -> None:
    assert list(marks_in('@pytest.mark.requirement("a-b", "c-d")\ndef test_it(): ...')) == [
        "a-b",
        "c-d",
    ]


@pytest.mark.parametrize("arguments", ["", "NAME", 'f"a-{b}"', "1"])
def test_a_mark_without_a_literal_id_is_refused(arguments: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        list(marks_in(f"pytestmark = pytest.mark.requirement({arguments})"))


def test_the_same_id_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        by_id([SAMPLE, SAMPLE])


@pytest.mark.parametrize(
    "identifier, source, behaviour",
    [
        ("single", "README.md#limits", "It holds."),
        ("Noun-Verb", "README.md#limits", "It holds."),
        ("noun-verb", "somewhere", "It holds."),
        ("noun-verb", "docs/architecture.md", "It holds."),
        ("noun-verb", "README.md#limits", "no full stop"),
    ],
)
def test_a_malformed_promise_is_refused(identifier: str, source: str, behaviour: str) -> None:
    with pytest.raises(ValueError, match=identifier):
        Requirement(identifier, "Area", source, behaviour)


def test_the_document_links_to_the_tests_and_escapes_table_cells() -> None:
    text = promises.render({SAMPLE.id: SAMPLE}, {SAMPLE.id: ["tests/test_it.py"]})

    row = (
        "| Something \\| holds. | `noun-verb` | [README.md#limits](../README.md#limits) "
        "| [tests/test_it.py](../tests/test_it.py) |"
    )
    assert row in text.splitlines()


def test_a_stale_document_is_reported_as_a_difference() -> None:
    assert promises.difference("old\n", "new\n").splitlines()[-2:] == ["-old", "+new"]
    assert promises.difference("same\n", "same\n") == ""


def test_anchors_follow_the_rules_of_rendered_headings() -> None:
    text = "# The bus\n## Keys, `tokens` & more\n```\n# no heading\n```\n## The bus\n"

    assert anchors(text) == {"the-bus", "keys-tokens--more", "the-bus-1"}
