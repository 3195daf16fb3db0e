"""Each claim of docs/security.md about what is defended names the promises that hold it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")

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
