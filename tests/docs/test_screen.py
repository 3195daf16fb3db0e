"""The recordings of README and docs/terminal.md are pictures and nothing else, and show what those say."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.docs.pages import ROOT
from tools.recording import PICTURE, film, normalised

README = (ROOT / "README.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


TERMINAL = (ROOT / "docs" / "terminal.md").read_text(encoding="utf-8")
ONE_WORD = ROOT / "docs" / "one-word.svg"
PICTURES = pytest.mark.parametrize("file", [PICTURE, ONE_WORD], ids=lambda file: file.stem)


def moments_of(file: Path) -> list[str]:
    """The text of each moment."""
    moments = ET.parse(file).getroot().findall(f"{SVG}g")
    return ["".join(moment.itertext()).replace("\xa0", " ") for moment in moments]


def test_the_recordings_stand_at_the_top():
    assert "](docs/one-word.svg)" in README.partition("## ")[0]
    assert "](screen.svg)" in TERMINAL.partition("## ")[0]


@PICTURES
def test_a_recording_has_nothing_of_the_machine_and_the_time_at_which_it_was_made(file: Path):
    text = " ".join(moments_of(file))
    assert not re.findall(r"/tmp/(?!postroom-demo-3f0c9a1e)|/root\b|/work\b|\bsk-|stand-in", text)
    assert set(re.findall(r"\b127\.[\d.]+:\d+", text)) == {"127.0.0.1:42800"}
    assert set(re.findall(r"\b\d\d:\d\d(?::\d\d)?\b", text)) <= {"09:41", "09:41:20"}
    assert "api.anthropic.com" in text or file == PICTURE


@PICTURES
def test_a_recording_loads_nothing_from_elsewhere(file: Path):
    text = file.read_text(encoding="utf-8")
    picture = ET.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in picture.iter()}.isdisjoint(
        {"script", "image", "foreignObject", "a"}
    )
    assert text.count("http") == text.count('"http://www.w3.org/2000/svg"')
    assert "@import" not in text
    assert "@font-face" not in text


def test_the_recording_shows_a_question_an_approval_and_a_branch():
    shown = moments_of(PICTURE)
    for wanted in ("@fixer asks:", "y allow", "branch postroom/fixer"):
        assert any(wanted in text for text in shown), wanted


def test_the_recording_of_the_readme_goes_from_the_offer_to_the_merged_change():
    shown = moments_of(ONE_WORD)
    words = (
        "an agent for this repository",
        "y allow",
        "completed",
        "m merges it",
        "y: yes",
        "undo",
    )
    assert len(shown) == len(words)
    assert all(word in text for word, text in zip(words, shown, strict=True))


def test_ids_and_times_of_a_run_are_replaced_by_ones_of_the_same_width():
    text = '<text x="1">task 9d41f07c at 13:56:23, 13:56 in /tmp/postroom-demo-ab12_xyz</text>'
    same = normalised(text)
    assert same == (
        '<text x="1">task 3f0c9a1e at 09:41:20, 09:41 in /tmp/postroom-demo-3f0c9a1e</text>'
    )
    assert len(same) == len(text)


def test_a_film_has_each_moment_once():
    one = '<svg class="a" viewBox="0 0 1 1" xmlns="http://www.w3.org/2000/svg"><g>{}</g></svg>'
    picture = ET.fromstring(film([one.format(name) for name in "abc"], "three", still=1))
    assert ["".join(moment.itertext()).strip() for moment in picture.findall(f"{SVG}g")] == [
        "a",
        "b",
        "c",
    ]
