"""The recorded session that the README begins with is a picture and nothing else, and is the one that is shown."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from tests.docs.pages import ROOT
from tools.recording import PICTURE, film, normalised

README = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATING = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


def test_the_recording_stands_at_the_top_and_loads_nothing_from_elsewhere():
    top = README.partition("## ")[0]
    assert "](docs/screen.svg)" in top
    text = PICTURE.read_text(encoding="utf-8")
    picture = ET.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in picture.iter()}.isdisjoint(
        {"script", "image", "foreignObject", "a"}
    )
    assert text.count("http") == text.count('"http://www.w3.org/2000/svg"')
    assert "@import" not in text
    assert "@font-face" not in text


def test_the_recording_shows_a_question_an_approval_and_a_branch():
    picture = ET.parse(PICTURE).getroot()
    moments = picture.findall(f"{SVG}g")
    shown = ["".join(moment.itertext()).replace("\xa0", " ") for moment in moments]
    for wanted in ("@fixer asks:", "y allow", "branch postroom/fixer"):
        assert any(wanted in text for text in shown), wanted


def test_ids_and_times_of_a_run_are_replaced_by_ones_of_the_same_width():
    text = '<text x="1">task 9d41f07c at 13:56:23, 13:56 in /tmp/postroom-demo-ab12_xyz</text>'
    same = normalised(text)
    assert same == (
        '<text x="1">task 3f0c9a1e at 09:41:20, 09:41 in /tmp/postroom-demo-3f0c9a1e</text>'
    )
    assert len(same) == len(text)


def test_a_film_has_each_moment_once():
    one = '<svg class="a" viewBox="0 0 1 1" xmlns="http://www.w3.org/2000/svg"><g>{}</g></svg>'
    picture = ET.fromstring(film([one.format(name) for name in "abc"]))
    assert ["".join(moment.itertext()).strip() for moment in picture.findall(f"{SVG}g")] == [
        "a",
        "b",
        "c",
    ]


def test_the_pages_count_the_packages_of_the_screen():
    base, screen = (pinned(name) for name in ("base", "demo"))
    assert base < screen
    assert f"the screen is an extra of {len(screen - base)} packages" in OPERATING


def pinned(name: str) -> set[str]:
    """The packages of a file of requirements."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
