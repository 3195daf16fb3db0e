"""What every adapter survives, whoever wrote the agent."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_LINE_BYTES, MAX_TURN_LINE_BYTES
from postroom.protocol.verbs import Post, Reply
from postroom.sidecar.adapters import (
    Adapter,
    End,
    Incoming,
    JsonLines,
    MalformedLine,
    Output,
    PlainText,
    Said,
    Sender,
)
from postroom.sidecar.adapters.turns import Answer, Asked, Event, TurnAdapter, TurnSaid, Withdrawn
from tests.sidecar.adapters.replay import (
    ADAPTERS,
    CASES,
    adapter_of,
    begin_turn,
    check,
    events,
    made,
    play,
    played,
    steps,
)

MARK = "a text after the noise"
VALID = {
    "acp": {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {
            "sessionId": "s",
            "update": {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "text", "text": MARK},
            },
        },
    },
    "claude": {"type": "assistant", "message": {"content": [{"type": "text", "text": MARK}]}},
    "codex": {
        "method": "item/completed",
        "params": {"item": {"type": "agentMessage", "id": "m", "text": MARK}},
    },
    "codex-exec": {
        "type": "item.completed",
        "item": {"type": "agent_message", "id": "m", "text": MARK},
    },
    "gemini": {"type": "message", "role": "assistant", "content": MARK, "delta": True},
    "goose": {
        "type": "message",
        "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": MARK}]},
    },
    "opencode": {"type": "text", "sessionID": "s", "part": {"type": "text", "text": MARK}},
}
"""A line of each agent that says a text."""

POST = json.dumps({"type": "post", "text": MARK}).encode()
MESSAGE = Incoming("m1", Sender("a" * 32), "@reader", "hi", expects_reply=True)
KILLED = End(137, 9)
ENDS = (KILLED, End(0), End(1, stderr="oh"), End(143, 15, signalled=True))

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
all_adapters = pytest.mark.parametrize("name", ADAPTERS)
all_cases = pytest.mark.parametrize("case", CASES)


def texts(said: list[TurnSaid]) -> str:
    return "".join(str(event.fields.get("text", "")) for event in events(said, EventKind.TEXT))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[begin:end] for begin, end in pairwise([0, *places, len(data)])]


def asked_text() -> PlainText:
    """The adapter of a run for a message."""
    adapter = PlainText()
    adapter.render(MESSAGE)
    return adapter


@pytest.mark.requirement("sidecar-lines-survive")
@all_adapters
@given(noise=st.binary(max_size=300), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_no_bytes_raise_or_lose_the_valid_line_after_them(name: str, noise: bytes, cuts: list[int]):
    adapter = made(name)
    begin_turn(adapter)
    valid = json.dumps(VALID[name]).encode()
    printed = pieces(noise + b"\n" + valid + b"\n", cuts)
    said = [each for piece in printed for each in adapter.feed(piece)]
    said += adapter.finish(KILLED)
    assert MARK in texts(said)
    check(said, turns=1)


@pytest.mark.requirement("sidecar-lines-survive")
@given(
    noise=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    ended=st.booleans(),
)
def test_no_bytes_raise_or_lose_the_action_or_the_words_after_them(
    noise: bytes, cuts: list[int], ended: bool
):
    lines, text = JsonLines(), asked_text()
    printed = pieces(noise + b"\n" + POST + b"\n" * ended, cuts)
    said = [each for piece in printed for each in lines.feed(piece)] + lines.finish(KILLED)
    assert Post(MARK) in said
    assert lines.finish(KILLED) == []

    for piece in pieces(noise + b"\n" + MARK.encode() + b"\n" * ended, cuts):
        assert text.feed(piece) == []
    (answer,) = text.finish(End(0))
    assert isinstance(answer, Reply)
    assert answer.text.endswith(MARK)


@pytest.mark.requirement("sidecar-lines-survive")
@given(records=st.lists(anything, max_size=5), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_actions_and_words_mean_the_same_however_they_are_cut(records: list[Any], cuts: list[int]):
    data = b"\n".join(json.dumps(record).encode() for record in [*records, {"type": "post"}])
    for make in (JsonLines, asked_text):
        whole, cut = make(), make()
        said = [each for piece in pieces(data, cuts) for each in cut.feed(piece)]
        said += cut.finish(End(0))
        assert said == [*whole.feed(data), *whole.finish(End(0))]


@pytest.mark.requirement("sidecar-lines-survive")
def test_an_overlong_line_is_told_to_the_agent_that_speaks_our_lines_and_the_next_is_read():
    said = too_long(JsonLines(), POST)
    assert [type(each) for each in said] == [Output, MalformedLine, Post]
    assert said[2] == Post(MARK)


@pytest.mark.requirement("sidecar-lines-survive")
def test_words_with_an_overlong_line_are_no_answer():
    logged, answer = too_long(asked_text(), MARK.encode())
    assert isinstance(logged, Output)
    assert isinstance(answer, Reply)
    assert "the answer has more than" in answer.text


def too_long(adapter: Adapter, then: bytes) -> list[Said]:
    """What the adapter makes of a line over the limit, in pieces, and of one line more."""
    piece, said = b"x" * (256 * 1024), []
    for _ in range(MAX_LINE_BYTES // len(piece) + 1):
        said += adapter.feed(piece)
    return [*said, *adapter.feed(b"\n" + then + b"\n"), *adapter.finish(End(0))]


@pytest.mark.requirement("sidecar-lines-survive")
@all_cases
def test_a_recording_means_the_same_byte_by_byte(case: str):
    def bytewise(adapter: TurnAdapter, data: bytes) -> list[TurnSaid]:
        return [said for byte in data for said in adapter.feed(bytes([byte]))]

    assert played(case, bytewise) == played(case)


@pytest.mark.requirement("sidecar-lines-survive")
@all_cases
def test_a_program_killed_after_any_line_leaves_one_result_and_nothing_open(case: str):
    recording = steps(case)
    for number in range(len(recording) + 1):
        for end in ENDS:
            adapter = made(adapter_of(case))
            until = recording[:number]
            said = [*play(adapter, until), *adapter.finish(end)]
            check(
                _without_answered(said, until), turns=sum(step["dir"] == "turn" for step in until)
            )
            assert adapter.finish(end) == []


@all_cases
@given(data=st.data())
def test_a_recording_with_a_changed_value_raises_nothing(case: str, data: st.DataObject):
    recording = [step for step in steps(case) if step["dir"] != "answer"]
    lines = [number for number, step in enumerate(recording) if step["dir"] == "out"]
    for number in data.draw(st.lists(st.sampled_from(lines), min_size=1, max_size=3)):
        record = json.loads(recording[number]["line"])
        _change(record, data)
        recording[number] = {"dir": "out", "line": json.dumps(record)}
    adapter = made(adapter_of(case))
    said = list(play(adapter, recording))
    for asked in [item for item in said if isinstance(item, Asked)]:
        adapter.answer(asked.request, Answer(allow=True, text="yes\nno"))
        adapter.answer(asked.request, Answer(allow=False))
    said += adapter.finish(data.draw(st.sampled_from(ENDS)))
    check(_without_asked(said), turns=sum(step["dir"] == "turn" for step in recording))


@pytest.mark.requirement("sidecar-lines-survive")
@all_adapters
def test_an_overlong_line_is_an_error_and_the_next_is_read(name: str):
    adapter = made(name)
    begin_turn(adapter)
    valid = json.dumps(VALID[name]).encode()
    piece, said = b"x" * (1024 * 1024), []
    for _ in range(MAX_TURN_LINE_BYTES // len(piece) + 1):
        said += adapter.feed(piece)
    said += adapter.feed(b"\n" + valid + b"\n") + adapter.finish(KILLED)
    [error] = events(said, EventKind.ERROR)
    assert error.fields["text"].endswith("xxx")
    assert MARK in texts(said)


@all_adapters
def test_a_line_as_large_as_a_file_is_one_event(name: str):
    adapter = made(name)
    begin_turn(adapter)
    large = "y" * 500_000
    said = adapter.feed(json.dumps(VALID[name]).replace(MARK, large).encode() + b"\n")
    said += adapter.finish(End(0))
    assert large in texts(said)


@all_adapters
def test_an_unknown_type_is_kept_as_it_is(name: str):
    adapter = made(name)
    line = json.dumps({"type": "dance", "method": "dance", "jsonrpc": "2.0"})
    said = adapter.feed(line.encode() + b"\n")
    assert said[-1] == Event(EventKind.RAW)
    assert events(said, EventKind.RAW)[0].raw == line


@all_adapters
@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_says_nothing_ends_its_turn(name: str, end: End):
    adapter = made(name)
    begin_turn(adapter)
    check(adapter.finish(end), turns=1)


@all_adapters
def test_a_program_that_ends_between_turns_says_nothing(name: str):
    adapter = made(name)
    assert adapter.finish(KILLED) == []


@all_adapters
def test_what_is_not_open_has_no_answer(name: str):
    adapter = made(name)
    assert adapter.answer("nothing", Answer(allow=True)) == b""


def _without_answered(said: list[TurnSaid], recording: list[dict[str, Any]]) -> list[TurnSaid]:
    """All but the requests that the recording answers: the first ones."""
    answered = sum(step["dir"] == "answer" for step in recording)
    asked = [item for item in said if isinstance(item, Asked)][:answered]
    return [item for item in said if item not in asked]


def _without_asked(said: list[TurnSaid]) -> list[TurnSaid]:
    return [item for item in said if not isinstance(item, Asked | Withdrawn)]


def _change(record: Any, data: st.DataObject) -> None:
    """Put something else at one place of a record."""
    while isinstance(record, dict | list) and record:
        keys = list(record) if isinstance(record, dict) else range(len(record))
        key = data.draw(st.sampled_from(list(keys)))
        inner = record[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            record[key] = data.draw(anything)
            return
        record = inner
