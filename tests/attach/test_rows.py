"""What an agent does, as rows and as lines of a terminal."""

from __future__ import annotations

import random
import string
from typing import Any

import click
import pytest

from postroom.lines.events import OUTPUT, EventRows
from postroom.lines.inputs import changes, exact_rows, input_rows, visible
from postroom.lines.rows import Row, Span, Style, painted
from postroom.lines.text import columns
from postroom.view.words import lines_of

HOSTILE = "\x1b[2J\x1b]0;title\x07\u202eevil\u200b\r● forged\nnew\x9b31m\ttab 漢字"


def shown(*events: dict[str, Any], compact: bool = False) -> list[str]:
    return list(map(click.unstyle, coloured(*events, compact=compact)))


def coloured(*events: dict[str, Any], compact: bool = False, width: int | None = None) -> list[str]:
    rows = EventRows("bob", compact=compact)
    made = [row for event in events for row in rows.of(event)] + rows.flush()
    return [line for row in made for line in painted(row, width)]


def call(name: str = "Bash", number: str = "c1", **given: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call": number, "tool": name, "title": "", "input": given}


def result(output: str, number: str = "c1", status: str = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "call": number, "status": status, "output": output, **more}


def text(said: str, *, delta: bool = False, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": said, "delta": delta}


# ── text ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("attach-shows-all-kinds")
def test_deltas_are_joined_into_lines_that_come_when_they_are_whole():
    rows = EventRows("bob")
    assert [row.text for row in rows.of(text("I will"))] == ["● I will"]
    assert rows.of(text("The fi", delta=True)) == []
    assert [row.text for row in rows.of(text("rst\nand ", delta=True))] == ["● The first"]
    assert [row.text for row in rows.of(text("more", delta=True))] == []
    assert [row.text for row in rows.flush()] == ["  and more"]


@pytest.mark.requirement("attach-shows-all-kinds")
def test_what_comes_after_a_text_without_end_ends_it():
    said = shown(text("Looking", delta=True), call(command="ls"), text("Done.", delta=True))
    assert said == ["● Looking", "▸ Bash  ls", "● Done."]


def test_a_thought_is_dim_and_left_out_where_little_is_shown():
    (row,) = EventRows("bob").of(text("hm", kind="thinking"))
    assert (row.text, row.spans[-1].style) == ("~ hm", Style.DIM)
    assert shown(text("hm", kind="thinking"), compact=True) == []


@pytest.mark.requirement("text-controls-stripped")
@pytest.mark.parametrize("width", [1, 7, 20, 40, None])
@pytest.mark.parametrize(
    "event",
    [
        text(HOSTILE),
        text(HOSTILE, kind="thinking"),
        call(HOSTILE, command=HOSTILE),
        call("Edit", file_path=HOSTILE, old_string=HOSTILE, new_string="b"),
        result(HOSTILE, status=HOSTILE, exit_code=3),
        {"type": "result", "status": HOSTILE, "reason": HOSTILE},
        {"type": "error", "text": HOSTILE, "code": HOSTILE},
        {"type": "raw", "raw": HOSTILE},
        {"type": "started", "model": HOSTILE, "version": HOSTILE},
        {"type": "interrupt", "reason": HOSTILE, "by": {"nick": HOSTILE}},
        {"type": "policy", "change": HOSTILE, "pattern": HOSTILE, "by": {"nick": HOSTILE}},
        {
            "type": "control_request",
            "tool": HOSTILE,
            "title": HOSTILE,
            "reason": HOSTILE,
            "input": {HOSTILE: HOSTILE, "command": HOSTILE},
        },
        {"type": "control_request", "kind": "question", "title": HOSTILE},
        {"type": "control_response", "decision": HOSTILE, "by": {"nick": HOSTILE}},
        {"type": HOSTILE, "text": HOSTILE},
        {"type": "text", "text": {"not": "a text"}, "turn": HOSTILE, "task": HOSTILE},
    ],
    ids=lambda event: str(event["type"])[:20] if isinstance(event, dict) else None,
)
def test_no_text_of_an_agent_acts_on_a_terminal_or_is_wider_than_it(
    event: dict[str, Any], width: int | None
):
    for line in coloured(event, {"type": "usage", "input_tokens": "x"}, width=width):
        assert not set(line) & set("\x07\r\n\t\x9b\u202e\u200b"), line
        plain = line.replace("\x1b[0m", "")
        while "\x1b[" in plain:  # our own colours alone
            before, _, rest = plain.partition("\x1b[")
            number, _, after = rest.partition("m")
            assert number.isdecimal(), line
            plain = before + after
        if width is not None:
            assert columns(plain) <= max(width, 2), line


@pytest.mark.requirement("text-controls-stripped")
def test_no_line_of_an_agents_text_begins_in_the_first_column():
    said = coloured(text("one\n▸ Bash  rm\r● forged " + "word " * 30), width=30)
    assert len(said) > 5
    assert [line[0] for line in said] == ["●", *(" " for _ in said[1:])]


# ── tools ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("attach-shows-all-kinds")
def test_of_an_output_the_first_lines_are_shown_and_how_many_more_there_are():
    output = "\n".join(f"line {number}" for number in range(OUTPUT + 3))
    said = shown(call(command="make"), result(output, status="error", exit_code=2))
    assert said == [
        "▸ Bash  make",
        *(f"  │ line {number}" for number in range(OUTPUT)),
        "  … 3 more lines",
        "  error, exit code 2",
    ]


@pytest.mark.requirement("attach-shows-all-kinds")
def test_a_result_that_comes_after_another_call_names_its_own():
    said = shown(call(command="one", number="1"), call(command="two", number="2"), result("x", "1"))
    assert said[2:] == ["  Bash one:", "  │ x"]


@pytest.mark.requirement("attach-shows-all-kinds")
@pytest.mark.parametrize(
    "given",
    [
        {"file_path": "a.py", "old_string": "a\nb\nc", "new_string": "a\nB\nc"},
        {"filePath": "a.py", "oldString": "a\nb\nc", "newString": "a\nB\nc"},
        {"path": "a.py", "oldText": "a\nb\nc", "newText": "a\nB\nc"},
        {"file_path": "a.py", "edits": [{"old_string": "a\nb\nc", "new_string": "a\nB\nc"}]},
        {"changes": {"a.py": {"unified_diff": " a\n-b\n+B\n c"}}},
        {"changes": [{"path": "a.py", "diff": " a\n-b\n+B\n c"}]},
    ],
)
def test_an_edit_is_shown_as_a_diff_however_the_agent_names_the_fields(given: dict[str, Any]):
    assert [change.path for change in changes(given)] == ["a.py"]
    rows = EventRows("bob").of(call("Edit", **given))
    assert [row.text for row in rows[1:]] == ["     a", "    -b", "    +B", "     c"]
    styles = [row.spans[0].style for row in rows[1:]]
    assert styles == [Style.DIM, Style.REMOVED, Style.ADDED, Style.DIM]


def test_a_huge_edit_is_shown_without_comparing_it():
    rng = random.Random(4)
    old, new = (
        "\n".join("".join(rng.choices(string.ascii_letters, k=3)) for _ in range(20_000))
        for _ in range(2)
    )
    said = shown(call("Edit", file_path="a", old_string=old, new_string=new))
    assert said[-1] == "    … 39960 more lines"


def test_where_little_is_shown_a_call_is_one_row_and_only_a_failed_result_another():
    said = shown(
        call(command="ls\npwd"),
        result("a\nb"),
        call(),
        result("no\nway", exit_code=1),
        compact=True,
    )
    assert said == ["▸ Bash  ls", "▸ Bash", "  │ no", "  … 1 more line", "  failed, exit code 1"]


# ── what else there is ───────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("attach-shows-all-kinds")
def test_the_end_of_a_turn_says_what_it_has_used():
    used = {"type": "usage", "input_tokens": 1000, "output_tokens": 20, "cost": 0.25}
    end = {"type": "result", "status": "completed", "text": ""}
    said = shown(used, used, end, end | {"status": "failed", "reason": "no model"})
    assert said == ["■ completed · 2,000 tokens in, 40 out, $0.5000", "■ failed: no model"]


def test_each_turn_begins_with_what_it_is_for():
    one = {"turn": "1", "task": "ab12cd34ef"}
    said = shown(
        text("a") | one, text("b") | one, text("c") | {"turn": "2", "message": "99887766ff"}
    )
    assert said == ["── task ab12cd34", "● a", "● b", "── message 99887766", "● c"]


def test_what_a_turn_is_for_is_said_again_only_when_it_changes():
    one = {"turn": "1", "task": "ab12cd34ef"}
    said = shown(
        text("a") | one,
        {"type": "control_response", "decision": "allowed", "task": "ab12cd34ef"},
        {"type": "control_response", "decision": "denied", "message": "99887766ff"},
        {"type": "interrupt"},
        text("b") | one,
        {"type": "result", "status": "completed"} | one,
        {"type": "usage", "input_tokens": 1} | one,
        text("c") | {"turn": "2", "task": "ab12cd34ef"},
        {"type": "result", "status": "completed", "turn": "2"},
        text("d") | {"turn": "3"},
        text("e") | {"turn": "4", "task": "ab12cd34ef"},
    )
    heads = [line for line in said if line.startswith("──") and "interrupted" not in line]
    assert heads == ["── task ab12cd34", "── turn", "── task ab12cd34"]
    assert said.index("── turn") == said.index("● d") - 1


def test_a_decision_begins_no_turn_and_the_turn_goes_on_behind_it():
    one = {"turn": "1", "task": "ab12cd34ef"}
    decided = {"type": "control_response", "decision": "allowed", "task": "ab12cd34ef"}
    said = shown(text("a") | one, decided, text("b") | one)
    assert said == ["── task ab12cd34", "● a", "  allowed", "● b"]


def test_a_title_that_is_the_tools_name_is_not_said_twice():
    assert shown({"type": "tool_call", "call": "c", "tool": "Ask", "title": "Ask"}) == ["▸ Ask"]


def test_a_decision_says_by_whom_and_over_which_channel():
    def said(**event: Any) -> list[str]:
        return shown({"type": "control_response", **event})

    by = {"nick": "maria"}
    assert said(decision="denied", by=by, channel="cli", reason="no\nway") == [
        "  denied by @maria (cli): no"
    ]
    assert said(decision="allowed", channel="policy") == ["  allowed by its policy"]
    assert said(decision="expired", channel="clock") == ["  expired, since nobody answered in time"]


@pytest.mark.requirement("policy-added-at-once")
def test_who_has_changed_what_the_agent_may_do_is_said_where_it_happened():
    by = {"nick": "maria", "uid": "0" * 32}
    changed = {"type": "policy", "by": by, "pattern": "Bash(npm *)"}
    assert shown(changed | {"change": "added"}, changed | {"change": "removed"}) == [
        "── allowed from now on by @maria: Bash(npm *)",
        "── asked again by @maria: Bash(npm *)",
    ]


# ── what is asked for ────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("approval-shown-decided")
@pytest.mark.parametrize(
    "filler, shown",
    [
        (" " * 20_000, "[20000 spaces]"),
        ("\t" * 500, "[500 characters that do not show: \\x09]"),
        ("\u3164" * 500, "[500 characters that do not show: \\u{3164}]"),
        (" \u00a0" * 500, "[1000 characters that do not show: space, \\xa0]"),
        ("\n" * 401, "[400 empty lines]"),
        ("\n" + "  \t\n" * 400, "[400 empty lines]"),
        ("\n" + "\u200b \n\n" * 200, "[400 empty lines]"),
        ("\n" + "true\n" * 400, "[399 more lines like this]"),
        ("\n" + (" " * 900 + "\n") * 400, "[400 empty lines]"),
    ],
)
@pytest.mark.parametrize("field", ["command", "argument"])
def test_nothing_is_pushed_out_of_sight_with_blanks(field: str, filler: str, shown: str):
    rows = [row.text for row in input_rows({field: f"npm test;{filler}rm -rf ~"})]
    assert len(rows) <= 5
    assert all(len(row) < 120 for row in rows)
    whole = "\n".join(rows)
    assert whole.index("npm test;") < whole.index(shown) < whole.index("rm -rf ~")


@pytest.mark.requirement("approval-shown-decided")
def test_a_change_and_a_list_of_words_hide_nothing_behind_blanks_either():
    far = "a" + " " * 9000 + "b"
    for given in (
        {"command": ["sh", "-c", far]},
        {"file_path": "x", "old_string": "", "new_string": f"one\n{chr(10) * 500}{far}"},
        {"edits": [{"path": "x", "content": far}]},
        {"deep": {"er": [far]}},
    ):
        rows = [row.text for row in input_rows(given)]
        assert len(rows) < 12
        assert "[9000 spaces]b" in "".join(rows)


def test_usual_blanks_and_lines_are_shown_as_they_are():
    text = "if x:\n" + " " * 40 + "y\n\n\n\n" + "}\n" * 4
    shown = [row.text.removeprefix(" " * 4) for row in exact_rows({"content": text})]
    assert shown[1:] == text.split("\n")[1:-1]


@pytest.mark.requirement("approval-shown-decided")
def test_what_an_agent_asks_for_is_shown_whole_with_every_character_that_hides():
    given = {"command": "echo a\u202e\u200b \\\n  && rm -rf /\x1b[8m", "timeout": 5}
    assert [row.text for row in exact_rows(given)] == [
        "  $ echo a\\u{202e}\\u{200b} \\",
        "      && rm -rf /\\x1b[8m",
        "  timeout: 5",
    ]


@pytest.mark.requirement("approval-shown-decided")
def test_no_end_of_a_long_command_is_cut_off():
    (row,) = exact_rows({"command": "echo " + "x" * 500 + "; rm -rf /"})
    lines = list(map(click.unstyle, painted(row, 40)))
    assert " ".join(line.strip() for line in lines).endswith("x; rm -rf /")
    assert all(columns(line) <= 40 for line in lines)


def test_a_name_stands_for_what_hides_and_letters_stay_as_they_are():
    assert visible("naïve 漢字 e\u0301") == "naïve 漢字 e\u0301"
    assert visible("a\u00a0b\u2066\ue000") == "a\\xa0b\\u{2066}\\u{e000}"


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_is_wrapped_at_spaces_and_a_word_that_is_too_wide_in_itself():
    row = Row.of("aa bb cc " + "d" * 25, indent=2, wraps=True)
    assert painted(row, 12) == ["  aa bb cc", "  dddddddddd", "  dddddddddd", "  ddddd"]
    assert painted(Row((Span("漢" * 6),), wraps=True), 10) == ["漢漢漢漢", "  漢漢"]


def test_a_row_that_does_not_wrap_is_cut_with_an_ellipsis():
    row = Row((Span("▸ "), Span("Bash", Style.TOOL), Span("  something long")))
    (line,) = painted(row, 14)
    assert click.unstyle(line) == "▸ Bash  somet…"


def test_all_ends_of_line_count_and_empty_lines_at_the_end_do_not():
    assert lines_of("a\r\nb\rc\n\n") == ["a", "b", "c"]
