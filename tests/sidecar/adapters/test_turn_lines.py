from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters import End
from postroom.sidecar.adapters.loose import Record, count_in, record_in, text_in
from postroom.sidecar.adapters.turn_lines import MAX_OPEN, Meter, TurnLines
from postroom.sidecar.adapters.turns import (
    Answer,
    Asked,
    Event,
    Setup,
    TurnSaid,
    Withdrawn,
)


class Plain(TurnLines):
    """An adapter whose lines are events: {"kind": ..., ...fields}, or {"ask": id}."""

    def turn(self, prompt: str) -> bytes:
        self.start_turn()
        return prompt.encode()

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        if asked := text_in(record, "ask"):
            return [Asked(asked, "sh", "run it", raw=raw)]
        kind = text_in(record, "kind")
        if kind not in set(EventKind):
            return [self.unknown(raw)]
        return [Event(EventKind(kind), {k: v for k, v in record.items() if k != "kind"}, raw)]

    def answered(self, asked: Asked, answer: Answer) -> bytes:
        return f"{asked.request} {answer.allow}\n".encode()


def started(cap: int = 2000) -> Plain:
    adapter = Plain(Setup(("agent",)), cap=cap)
    adapter.turn("do it")
    return adapter


def line(**record: object) -> bytes:
    return json.dumps(record).encode() + b"\n"


def kinds(said: Iterable[TurnSaid]) -> list[str]:
    return [item.kind.value if isinstance(item, Event) else type(item).__name__ for item in said]


@pytest.mark.parametrize(
    "bad", [b"not json", b'["a"]', b'{"a":NaN}', b'{"a":1e999}', b"\xff\xfe{", b"[" * 900]
)
def test_a_line_that_is_no_record_is_text_with_its_source(bad: bytes):
    said = started().feed(bad + b"\n" + line(kind="text", text="next"))
    assert kinds(said) == ["text", "text"]
    assert isinstance(said[0], Event)
    assert said[0].raw
    assert said[1] == Event(EventKind.TEXT, {"text": "next"})


def test_a_record_that_nests_too_deep_is_no_record():
    assert record_in('{"a":' * 65 + "1" + "}" * 65) is None
    assert record_in('{"a":' * 60 + "1" + "}" * 60) is not None
    assert record_in(json.dumps({"a": [{}] * 500})) is not None


def test_a_lone_surrogate_is_a_question_mark():
    assert record_in(r'{"a":"x\ud83d"}') == {"a": "x?"}
    assert record_in(r'{"a":"\ud83d\ude00"}') == {"a": "😀"}


def test_a_count_fits_every_reader():
    assert count_in({"n": 10**30}, "n") == 2**53 - 1
    assert [count_in({"n": n}, "n") for n in (-1, True, "7", None, 7.9)] == [0, 0, 0, 0, 7]


def test_an_overlong_line_is_an_error_with_its_beginning_and_the_next_is_read():
    said = started(cap=100).feed(
        b'{"kind":"text","text":"' + b"x" * 500 + b'"}\n' + line(kind="text", text="next")
    )
    assert kinds(said) == ["error", "text"]
    assert isinstance(said[0], Event)
    assert 'text":"xxx' in said[0].fields["text"]


def test_an_unknown_type_is_raw_and_counted():
    adapter = started()
    said = adapter.feed(line(kind="dance"))
    assert kinds(said) == ["raw"]
    assert adapter.unread == 1
    assert isinstance(said[0], Event)
    assert said[0].raw == '{"kind": "dance"}'


def test_what_is_open_is_closed_before_the_result():
    adapter = started()
    said = adapter.feed(
        line(kind="tool_call", call="1")
        + line(kind="tool_call", call="2")
        + line(kind="tool_result", call="1", status="ok")
        + line(ask="a")
        + line(kind="result", status="completed")
    )
    assert kinds(said) == [
        "tool_call",
        "tool_call",
        "tool_result",
        "Asked",
        "Withdrawn",
        "tool_result",
        "result",
    ]
    assert said[5] == Event(
        EventKind.TOOL_RESULT, {"call": "2", "status": "interrupted", "output": ""}
    )
    assert adapter.answer("a", Answer(allow=True)) == b""


def test_a_turn_has_one_result():
    adapter = started()
    assert kinds(adapter.feed(line(kind="result", status="completed") * 2)) == ["result", "raw"]
    assert adapter.finish(End(1)) == []


def test_the_last_text_is_the_results_where_it_has_none():
    adapter = started()
    adapter.feed(
        line(kind="text", text="one")
        + line(kind="text", text="two")
        + line(kind="text", text=" three", delta=True)
    )
    [result] = adapter.feed(line(kind="result", status="completed"))
    assert isinstance(result, Event)
    assert result.fields["text"] == "two three"


@pytest.mark.parametrize(
    "said, end, status, reason",
    [
        (line(kind="error", text="no key", fatal=True), End(0), "failed", "no key"),
        (line(kind="error", text="no key", fatal=True), End(137, 9, signalled=True), "failed", "no key"),
        (line(kind="error", text="once more"), End(3, stderr="oh\x1b[1m"), "failed", "exit code 3: oh"),
        (b"", End(130, signalled=True), "interrupted", "the program was stopped"),
        (b"", End(137, 9), "failed", "the program was killed by signal 9"),
        (b"", End(0), "failed", "exit code 0"),
    ],
)  # fmt: skip
def test_a_turn_without_a_result_gets_one_at_the_end(
    said: bytes, end: End, status: str, reason: str
):
    adapter = started()
    adapter.feed(said)
    result = adapter.finish(end)[-1]
    assert isinstance(result, Event)
    assert result.fields["status"] == status
    assert result.fields["reason"].startswith(reason)


def test_a_program_of_one_turn_that_ends_well_has_completed_it():
    adapter = started()
    adapter.resident = False
    [_text, result] = (*adapter.feed(line(kind="text", text="42")), *adapter.finish(End(0)))
    assert isinstance(result, Event)
    assert result.fields == {"status": "completed", "text": "42"}


def test_the_rest_of_the_output_counts_at_the_end():
    adapter = started()
    assert adapter.feed(b'{"kind":"result","status":"completed"}') == []
    assert kinds(adapter.finish(End(0))) == ["result"]


def test_what_an_agent_leaves_open_is_bounded():
    adapter = started()
    said = adapter.feed(b"".join(line(kind="tool_call", call=str(n)) for n in range(MAX_OPEN + 1)))
    assert kinds(said[-2:]) == ["tool_result", "tool_call"]
    said = adapter.feed(b"".join(line(ask=str(n)) for n in range(MAX_OPEN + 1)))
    assert said[-2] == Withdrawn("0")


def test_a_request_is_answered_once():
    adapter = started()
    adapter.feed(line(ask="a"))
    assert [adapter.answer("a", Answer(allow=True)) for _ in range(2)] == [b"a True\n", b""]


def test_totals_become_differences_also_after_they_began_anew():
    meter = Meter()
    assert meter.since({"input_tokens": 100, "output_tokens": 10}) == {
        "input_tokens": 100,
        "output_tokens": 10,
    }
    assert meter.since({"input_tokens": 100, "output_tokens": 15}) == {"output_tokens": 5}
    assert meter.since({"input_tokens": 30, "output_tokens": 20}) == {
        "input_tokens": 30,
        "output_tokens": 5,
    }
