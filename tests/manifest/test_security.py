"""Each claim of docs/security.md about what is defended names the promises that hold it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import HEADINGS, PLACES
from tests.requirements import REQUIREMENTS
from tools.requirement_marks import scan

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")

DEFENDED = (
    "What is defended",
    "Who is who",
    "Revocation and rotation",
    "NATS through the door",
    "Egress",
)
"""Sections in which every bullet is such a claim."""

_NAMED = re.compile(r"\[(`[a-z0-9-]+`(?:,\s+`[a-z0-9-]+`)*)\](?!\()")


def _promises(text: str) -> list[str]:
    return [name for found in _NAMED.findall(text) for name in re.findall(r"`([^`]+)`", found)]


def _bullets(section: str) -> list[str]:
    found = re.search(
        rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE
    )
    assert found is not None, section
    # A bullet ends with an empty line, the next one, or a line that is not set in.
    return re.findall(r"^- .*(?:\n  .*)*", found[1], re.MULTILINE)


@pytest.mark.requirement("manifest-promises-tested")
def test_every_promise_that_the_document_names_exists():
    named = _promises(TEXT)

    assert len(named) > 50
    assert sorted(set(named) - REQUIREMENTS.keys()) == []


@pytest.mark.requirement("manifest-promises-tested")
@pytest.mark.parametrize("section", DEFENDED)
def test_every_claim_of_what_is_defended_names_a_promise(section: str):
    bullets = _bullets(section)

    assert bullets
    assert [bullet for bullet in bullets if not _promises(bullet)] == []


def _section(heading: str) -> str:
    found = re.search(
        rf"^### Against {re.escape(heading)}\n(.*?)(?=^##)", TEXT, re.DOTALL | re.MULTILINE
    )
    assert found is not None, heading
    return found[1]


@pytest.mark.requirement("manifest-promises-tested")
def test_everybody_in_the_threat_model_has_a_heading_and_tests():
    model = TEXT.partition("| who | has | wants |\n")[2].partition("\n\n")[0]
    who = [line.split(" | ")[0].removeprefix("| ") for line in model.splitlines()[1:]]

    assert sorted(who) == sorted(PLACES)
    headings = re.findall(r"^### Against (.*)$", TEXT, re.MULTILINE)
    assert sorted(headings) == sorted(HEADINGS.get(each, each) for each in PLACES)
    assert [each for files in PLACES.values() for each in files if not (ROOT / each).exists()] == []


@pytest.mark.requirement("manifest-promises-tested")
def test_each_promise_against_somebody_is_tried_where_they_stand():
    proofs = scan(ROOT)
    missing = [
        f"{promise}: no test stands in the place of {who}"
        for who, files in PLACES.items()
        for promise in _promises(_section(HEADINGS.get(who, who)))
        if not any(test.startswith(files) for test in proofs[promise])
    ]

    assert missing == []
