"""Colours, and telling things apart without any."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.color import Color
from textual.app import App

from postroom.lines.rows import Row, Span, Style
from postroom.tui import running as theme
from postroom.tui.looks import COLOURLESS, LOOKS, NICKS, nick_colour
from postroom.tui.rowlog.log import Block
from tests.tui.rowlog.terminal import framed, written_for


def _light(colour: str) -> float:
    """Relative luminance, as WCAG has it."""
    parts = (value / 255 for value in Color.parse(colour).get_truecolor())
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_is_read_on_black_and_on_white():
    styles = [look.color.name for look in LOOKS.values() if look.color]
    for colour in {*styles, *NICKS}:
        light = _light(colour)
        assert (light + 0.05) / 0.05 >= 3, colour
        assert 1.05 / (light + 0.05) >= 3, colour


def test_a_nick_has_its_colour_in_every_session():
    assert nick_colour("AgQb3") == "color(163)"
    assert len({nick_colour(str(n)) for n in range(200)}) == len(NICKS)


def test_without_colours_what_asks_and_what_is_bad_still_look_different():
    looks = [COLOURLESS[s] for s in (Style.PLAIN, Style.DIM, Style.STRONG, Style.BAD, Style.ASKS)]
    assert len(set(map(str, looks))) == len(looks)
    assert not any(look.color or look.bgcolor for look in COLOURLESS.values())


@pytest.mark.anyio
async def test_with_no_color_no_colour_reaches_the_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [Row((Span("x", style), Span("y", who="uid"))) for style in Style]
    async with framed() as (pilot, screen, log):
        log.focus()
        written = await written_for(pilot, screen, Block(rows, folds=True))
    codes = {n for found in re.findall(r"\x1b\[([\d;]*)m", written) for n in found.split(";")}
    assert codes <= {"", "0", "1", "2", "4", "7", "39", "49"}


def test_a_theme_is_kept_and_the_environment_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "postroom" / "theme"
    monkeypatch.delenv(theme.VARIABLE, raising=False)
    assert theme.choose(App(), file) == App().theme
    theme.keep("ansi-light", file)
    assert theme.choose(App(), file) == "ansi-light"
    monkeypatch.setenv(theme.VARIABLE, "nord")
    assert theme.choose(App(), file) == "nord"
    monkeypatch.setenv(theme.VARIABLE, "no such one")
    assert theme.choose(App(), file) == App().theme
