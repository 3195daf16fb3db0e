"""The cursor, folding, finding, copying and links."""

from __future__ import annotations

import pytest
from textual.geometry import Offset
from textual.selection import Selection

from postroom.lines.rows import Row
from postroom.tui.news import Said
from postroom.tui.rowlog.links import Links
from postroom.tui.rowlog.log import Block, RowLog
from tests.tui.rowlog.conftest import a_log, block, many, of_app, shown

pytestmark = pytest.mark.anyio


def said(log: RowLog) -> str:
    *_, last = (event.text for event in of_app(log).told if isinstance(event, Said))
    return last


# ── folding ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_folded_block_shows_its_first_row_and_how_many_are_hidden():
    tool = block("Bash make", "one", "two", key="t", folds=True, folded=True)
    async with a_log(block("before"), tool, block("after")) as (pilot, log):
        assert shown(log)[:3] == ["before", "Bash make … 2 more", "after"]
        assert log.render_line(1).text[0] == "▸"
        await pilot.press("k", "k", "space")
        assert shown(log)[:5] == ["before", "Bash make", "  one", "  two", "after"]
        assert log.render_line(1).text[0] == "▾"
        assert log.current == "t"


async def test_a_fold_of_the_person_outlives_a_new_version_of_the_block():
    tool = {"key": "t", "folds": True, "folded": True}
    async with a_log(block("call", "one", **tool)) as (pilot, log):
        await pilot.press("enter")
        assert shown(log)[1] == "  one"
        log.put([block("call", "one", "two", **tool)])
        assert shown(log)[2] == "  two"


async def test_a_click_on_its_head_folds_a_block_and_two_open_one_that_does_not_fold():
    async with a_log(block("call", "one", key="t", folds=True), block("said", key="s")) as (
        pilot,
        log,
    ):
        await pilot.click(log, offset=(3, 0))
        assert shown(log)[:2] == ["call … 1 more", "said"]
        await pilot.click(log, offset=(3, 1), times=2)
        await pilot.pause()
        assert [e.key for e in of_app(log).told if isinstance(e, RowLog.Opened)] == ["s"]


async def test_the_cursor_goes_from_block_to_block_and_line_by_line_through_a_long_one():
    long = block(*(f"line {n}" for n in range(30)), key="long")
    async with a_log(block("top", key="top"), long, block("end", key="end")) as (pilot, log):
        await pilot.press("up")
        assert log.current == "end"
        await pilot.press("up")
        assert shown(log)[-1] == "  line 29"
        for _ in range(40):
            log.action_cursor(-1)
        assert (log.current, shown(log)[0]) == ("top", "top")
        await pilot.press("enter")
        await pilot.pause()
        assert [e.key for e in of_app(log).told if isinstance(e, RowLog.Opened)] == ["top"]
        for _ in range(40):
            log.action_cursor(1)
        assert log.at_end


async def test_it_goes_to_the_block_of_a_key():
    async with a_log(*many(100)) as (_, log):
        assert log.go_to("k40")
        assert "row 40" in shown(log)
        assert log.current == "k40"
        assert not log.go_to("k400")


# ── finding ──────────────────────────────────────────────────────────────────────────────────────


async def test_finding_goes_from_match_to_match_and_unfolds_what_it_finds_in():
    hidden = block("call", "the NEEDLE here", key="t", folds=True, folded=True)
    rows = [*many(40), hidden, *many(40, 40), block("needle at the end")]
    async with a_log(*rows, size=(50, 10)) as (pilot, log):
        await pilot.press("f", *"Needle", "enter")
        assert shown(log)[-1] == "needle at the end"
        await pilot.press("comma")
        assert "  the NEEDLE here" in shown(log)
        await pilot.press("comma")
        await pilot.pause()
        assert said(log) == "nothing above has “needle”"
        await pilot.press("full_stop")
        assert "needle at the end" in shown(log)


async def test_what_is_found_is_marked_and_escape_takes_the_marks_away():
    async with a_log(block("say hello"), block("hello again")) as (pilot, log):
        await pilot.press("f", *"hello", "up")
        for y in (0, 1):
            assert [s.text for s in log.render_line(y) if s.style and s.style.reverse] == ["hello"]
        await pilot.press("escape")
        assert not [s for s in log.render_line(0) if s.style and s.style.reverse]
        assert log.has_focus


async def test_finding_in_100_000_rows_that_are_not_laid_out_shows_the_row():
    async with a_log(*many(3000)) as (_, log):
        log.put([block(*(f"word {n} " * (n % 40) for n in range(2000)))])
        assert log.find("word 777 ")
        assert any("word 777" in line for line in shown(log))


# ── copying ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_copies_the_block_under_the_cursor_without_breaks_marks_and_common_indent():
    rows = [
        Row.of("def f(): " + "x " * 40, indent=4, wraps=True),
        Row.of("    return 漢字", indent=4),
        Row.of("", indent=4),
        Row.of("deeper", indent=6),
    ]
    async with a_log(block("other"), Block(rows, key="code", folds=True, folded=True)) as (
        pilot,
        log,
    ):
        await pilot.press("k", "c")
        await pilot.pause()
        text = "def f(): " + "x " * 39 + "x\n    return 漢字\n\n  deeper"
        assert pilot.app.clipboard == text
        assert said(log) == "copied 4 rows"


@pytest.mark.parametrize("width", [20, 60])
async def test_a_selection_by_mouse_is_copied_as_whole_rows_whatever_the_width(width: int):
    text = "alpha beta gamma delta epsilon 漢字 zeta eta theta"
    async with a_log(block("head", text, "tail"), size=(width, 12)) as (pilot, log):
        lines = shown(log)
        last = next(y for y, line in enumerate(lines) if "tail" in line)
        await pilot.mouse_down(log, offset=(1 + 2, 1))  # the indent of the text: its beginning
        await pilot.hover(log, offset=(1 + 2 + 2, last))
        await pilot.mouse_up(log, offset=(1 + 2 + 2, last))
        await pilot.pause()
        await pilot.press("c")
        assert pilot.app.clipboard.split("\n")[0] == text
        assert pilot.app.clipboard.split("\n")[1].startswith("ta")


async def test_a_selection_stays_with_its_rows_while_others_come_above_and_below():
    async with a_log(*many(5, 10)) as (pilot, log):
        log.screen.selections = {log: Selection(Offset(0, 1), Offset(6, 2))}
        log.put(many(5, 15))
        log.put_before(many(10))
        assert log.screen.get_selected_text() == "row 11\nrow 12"
        await pilot.pause()


# ── links ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_click_opens_the_link_that_is_shown_and_nothing_else_does():
    async with a_log(block("see https://example.com/a?b=c), ok"), size=(60, 5)) as (pilot, log):
        await pilot.click(log, offset=(2, 0))
        await pilot.pause()
        assert of_app(log).urls == []
        await pilot.click(log, offset=(10, 0))
        await pilot.pause()
        assert of_app(log).urls == ["https://example.com/a?b=c"]


async def test_a_link_broken_over_lines_is_opened_as_a_whole():
    url = "https://example.com/" + "path/" * 20
    async with a_log(block(url), size=(40, 8)) as (pilot, log):
        await pilot.click(log, offset=(10, 2))
        await pilot.pause()
        assert of_app(log).urls == [url]


async def test_an_address_that_is_not_what_it_seems_is_opened_only_after_it_was_shown():
    texts = ("https://аpple.com/x", "https://bank.example@evil.example/")  # noqa: RUF001
    async with a_log(*map(block, texts), size=(80, 20)) as (pilot, log):
        for y, url in enumerate(("https://xn--pple-43d.com/x", texts[1])):
            await pilot.click(log, offset=(10, y))
            await pilot.pause()
            assert isinstance(pilot.app.screen, Links)
            assert of_app(log).urls[y:] == []
            await pilot.press("enter")
            await pilot.pause()
            assert of_app(log).urls[y:] == [url]


async def test_a_key_opens_the_link_of_the_block_and_lets_one_choose_among_several():
    async with a_log(block("http://one.example and", "http://two.example")) as (pilot, log):
        await pilot.press("o")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert of_app(log).urls == ["http://two.example"]


async def test_over_ssh_a_link_is_copied_instead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSH_CONNECTION", "1 2 3 4")
    monkeypatch.delenv("BROWSER", raising=False)
    async with a_log(block("http://one.example")) as (pilot, log):
        await pilot.press("o")
        await pilot.pause()
        assert of_app(log).urls == []
        assert pilot.app.clipboard == "http://one.example"
