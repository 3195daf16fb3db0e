"""Following the end, scrolling, and what is kept."""

from __future__ import annotations

import pytest

from postroom.lines.rows import Row
from postroom.tui.rowlog import kept
from postroom.tui.rowlog.log import Block, RowLog
from tests.tui.rowlog.conftest import a_log, block, many, of_app, shown

pytestmark = pytest.mark.anyio


async def test_the_end_is_followed_until_one_scrolls_up_and_again_at_the_end():
    async with a_log(*many(50)) as (pilot, log):
        assert shown(log)[-1] == "row 49"
        log.put(many(1, 50))
        assert shown(log)[-1] == "row 50"
        await pilot.press("pageup")
        seen = shown(log)
        log.put(many(3, 51))
        assert shown(log)[:-1] == seen[:-1]
        assert "3 new" in shown(log)[-1]
        await pilot.press("G")
        assert shown(log)[-1] == "row 53"
        log.put(many(1, 54))
        assert shown(log)[-1] == "row 54"


async def test_older_rows_at_the_top_leave_what_is_seen_where_it_is():
    async with a_log(*many(50, 100)) as (pilot, log):
        await pilot.press("home")
        await pilot.pause()
        assert [type(event) for event in of_app(log).told] == [RowLog.AtTop]
        assert shown(log)[0] == "row 100"
        log.put_before(many(100))
        assert shown(log)[0] == "row 100"
        await pilot.press("pageup")
        assert shown(log)[-1] == "row 100"


async def test_a_block_is_replaced_where_it_stands_and_one_without_rows_takes_no_line():
    async with a_log(*many(5)) as (_, log):
        log.put([block("other", "more", key="k2"), block(key="k3")])
        assert shown(log)[:5] == ["row 0", "row 1", "other", "  more", "row 4"]
        log.put([block("third", key="k3")])
        assert shown(log)[:6] == ["row 0", "row 1", "other", "  more", "third", "row 4"]


async def test_text_that_grows_is_followed_line_by_line():
    async with a_log(*many(20)) as (_, log):
        for words in range(1, 60):
            log.put([block(*["w " * 10] * (words // 10), "word " * words, key="stream")])
        assert shown(log)[-1] == "  word word word"


async def test_rows_are_wrapped_anew_for_another_width_and_what_is_seen_stays():
    rows = [block(f"row {n} " + "word " * (n % 30), key=f"k{n}") for n in range(400)]
    async with a_log(*rows) as (pilot, log):
        for _ in range(10):
            log.action_page(-1)
        first = next(line for line in shown(log) if line.startswith("row"))
        await pilot.resize_terminal(80, 10)
        await pilot.pause()
        assert any(line.startswith(first[:7]) for line in shown(log)[:4])
        await pilot.press("end")
        await pilot.resize_terminal(30, 10)
        await pilot.pause()
        assert log.at_end
        assert shown(log)[-1].endswith("word")


async def test_going_up_page_by_page_shows_every_row_once_though_heights_are_estimates():
    texts = [f"row{n} " + ("longwordhere " * (n % 23)) for n in range(300)]
    async with a_log(*map(block, texts), size=(31, 12)) as (_, log):
        lines = shown(log)
        while log.scroll_y > 0:
            before, where = lines[0], log.scroll_y
            log.action_page(-1)
            page = shown(log)
            assert page[-1] == before or log.scroll_y == 0, where
            lines = page[:-1] + lines if log.scroll_y else lines
        names = [line.split()[0] for line in lines if line.startswith("row")]
        assert names == [f"row{n}" for n in range(300 - len(names), 300)]


@pytest.mark.requirement("screen-scrollback")
async def test_the_oldest_blocks_go_when_there_are_too_many_rows(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(kept, "MOST", 100)
    async with a_log(*many(90)) as (pilot, log):
        await pilot.press("pageup", "pageup")
        seen = shown(log)
        log.put(many(60, 90))
        assert log.row_count == 100
        assert shown(log)[:-1] == seen[:-1]
        await pilot.press("home")
        assert shown(log)[0] == "row 50"


async def test_one_huge_block_and_one_huge_row_are_bounded():
    rows = [Row.of(f"line {n}") for n in range(30_000)]
    async with a_log(Block(rows), Block([Row.of("x" * 100_000, wraps=True)])) as (_, log):
        assert log.row_count == kept.BLOCK_MOST + 1
        assert shown(log)[-1].endswith("83,616 more characters")
