"""Events as blocks: what belongs together is one, and nothing grows without end."""

from __future__ import annotations

from typing import Any

from postroom.lines.events import EventRows
from postroom.tui.rowlog.log import Block
from postroom.tui.worker.blocks import LONG, LONGEST, PIECE, EventBlocks

Log = dict[str, Block]


def log_of(*batches: list[dict[str, Any]], blocks: EventBlocks | None = None) -> Log:
    """What a log shows: a block takes the place of the one of its key."""
    blocks = blocks or EventBlocks("bob")
    shown: Log = {}
    for batch in batches:
        shown |= {block.key: block for block in blocks.of(batch)}
    return shown


def texts(log: Log) -> list[list[str]]:
    return [[row.text for row in block.rows] for block in log.values()]


def text(said: str, *, delta: bool = True, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": said, "delta": delta}


def call(number: str = "c1", command: str = "make", **given: Any) -> dict[str, Any]:
    input_ = {"command": command} | given
    return {"type": "tool_call", "call": number, "tool": "Bash", "title": "", "input": input_}


def result(output: str, number: str = "c1", status: str = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "call": number, "status": status, "output": output, **more}


def test_deltas_grow_one_block_which_comes_once_in_a_batch():
    blocks = EventBlocks("bob")
    (first,) = blocks.of([text("I wi"), text("ll do "), text("it")])
    (second,) = blocks.of([text(" now\nand th")])
    assert first.key == second.key
    assert [row.text for row in first.rows] == ["● I will do it"]
    assert [row.text for row in second.rows] == ["● I will do it now", "  and th"]


def test_a_long_text_is_cut_into_blocks_and_loses_no_line():
    lines = [f"line {n}" for n in range(3 * PIECE)]
    log = log_of(*([text(f"{line}\n")] for line in lines))
    assert len(log) == 3
    assert max(len(block.rows) for block in log.values()) <= PIECE
    assert [row.lstrip("● ").strip() for rows in texts(log) for row in rows] == lines
    assert sum(row.startswith("●") for rows in texts(log) for row in rows) == 1


def test_a_line_without_an_end_is_broken_so_that_it_is_not_wrapped_whole_each_time():
    said = "word " * LONGEST
    log = log_of(*([text(said[at : at + 1000])] for at in range(0, len(said), 1000)))
    rows = [row for block in log.values() for row in block.rows]
    assert max(len(row.text) for row in rows) <= LONGEST + 2
    assert "".join(row.text for row in rows).count("word") == LONGEST


def test_a_call_and_its_result_are_one_block_even_where_others_came_between():
    log = log_of([call("1", "one"), call("2", "two")], [result("x", "1")], [result("y", "2")])
    assert texts(log) == [["✓ Bash  one", "  │ x"], ["✓ Bash  two", "  │ y"]]


def test_a_long_result_is_folded_and_a_failure_says_so_in_its_first_row():
    long = "\n".join("x" * 3 for _ in range(LONG + 5))
    (done,) = log_of([call(), result(long)]).values()
    assert (done.folds, done.folded, len(done.rows)) == (True, True, LONG + 6)
    (bad,) = log_of([call(), result("no", exit_code=2)]).values()
    assert [row.text for row in bad.rows] == ["✗ Bash  make", "  │ no", "  failed, exit code 2"]
    assert not bad.folded


def test_a_request_and_its_decision_are_one_block():
    asks = {"type": "control_request", "request": "r1", "tool": "Bash", "input": {"command": "x"}}
    says = {"type": "control_response", "request": "r1", "decision": "denied", "reason": "no"}
    log = log_of([asks], [says | {"by": {"nick": "maria"}, "channel": "cli"}])
    assert texts(log) == [["? @bob asks to use Bash", "  $ x", "  denied by @maria (cli): no"]]


def test_thoughts_of_several_lines_are_folded():
    (block,) = log_of([text("hm\nso\n", kind="thinking")]).values()
    assert (block.folds, block.folded) == (True, True)


def test_an_older_page_takes_the_result_that_stands_in_the_page_after_it():
    newer = EventBlocks("bob")
    newer.of([result("4 passed")])
    older = log_of([call()], blocks=EventBlocks("bob", "1-", newer.late))
    assert texts(older) == [["✓ Bash  make", "  │ 4 passed"]]


def test_keys_of_pages_are_different():
    newer, older = EventBlocks("bob"), EventBlocks("bob", "1-")
    keys = {block.key for blocks in (newer, older) for block in blocks.of([call(), call("c2")])}
    assert len(keys) == 4


def test_the_rows_are_those_of_the_line_mode():
    events = [
        text("I look\n"),
        call(command="ls\npwd"),
        {"type": "error", "text": "no model", "code": "429"},
        {"type": "usage", "input_tokens": 10, "output_tokens": 2},
        {"type": "result", "status": "failed", "reason": "no model"},
    ]
    lines = EventRows("bob")
    there = [row.text for event in events for row in lines.of(event)]
    assert [row for rows in texts(log_of(events)) for row in rows] == there


def test_an_hour_of_calls_without_results_keeps_a_bounded_number_of_them():
    blocks = EventBlocks("bob")
    for number in range(5000):
        blocks.of([call(str(number)), result("x", f"other {number}")])
    assert len(blocks.late) + len(blocks._calls) < 1000
