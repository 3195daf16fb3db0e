from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.protocol.template import LINE_ADAPTERS
from postroom.protocol.verbs import Post, Reply, Seen, Send, SetStatus
from postroom.sidecar.adapters import (
    End,
    Heard,
    Incoming,
    IncomingTask,
    JsonLines,
    MalformedLine,
    Output,
    PlainText,
    Said,
    Sender,
    make_adapter,
    run_environment,
)
from tests.sidecar.printing import printed

ALICE = Sender("a" * 32, "alice", "worker")
MESSAGE = Incoming("m1", ALICE, "@reader", "hi", expects_reply=True, sent_at="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "line, action",
    [
        ('{"type":"send","to":"@bob","text":"x"}', Send("@bob", "x")),
        (
            '{"type":"send","to":"@bob","text":"x","expects_reply":true,"key":"k","ref":7,"expires_in":5}',
            Send("@bob", "x", True, "k", 5.0, 7),
        ),
        ('{"type":"reply","to":"m1","text":"x"}', Reply("m1", "x")),
        ('{"type":"post","text":"x","project":"#main"}', Post("x", "main")),
        ('{"type":"post","text":"x","project":null}', Post("x")),
        ('{"type":"seen","id":"m1"}', Seen("m1")),
        ('{"type":"status","state":"working","detail":"d"}', SetStatus("working", "d")),
        ("hello", Output("hello")),
        ('{"type":"dance"}', Output('{"type":"dance"}')),
        ('{"type":"send"', Output('{"type":"send"')),
        ('["type"]', Output('["type"]')),
    ],
)
def test_a_line_is_the_action_it_says_or_output(line: str, action: Said):
    assert printed(JsonLines(), line) == [action]


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"send","to":"@bob","ref":7}',
        '{"type":"send","to":1,"text":"x","ref":7}',
        '{"type":"send","to":"@bob","text":"x","expects_reply":"yes","ref":7}',
        '{"type":"send","to":"@bob","text":"x","expires_in":-1,"ref":7}',
        '{"type":"send","to":"@bob","text":"x","expires_in":NaN,"ref":7}',
        '{"type":"send","to":"@bob","text":"x","expires_in":true,"ref":7}',
        '{"type":"seen","ref":7}',
        '{"type":"status","state":"dancing","ref":7}',
        json.dumps({"type": "post", "text": "x", "key": "k" * 257, "ref": 7}),
    ],
)
def test_an_action_with_a_wrong_field_is_told_apart_with_its_reference(line: str):
    (action,) = printed(JsonLines(), line)

    assert isinstance(action, MalformedLine)
    assert action.ref == 7


def test_a_reference_that_would_fill_the_memory_is_not_kept():
    line = json.dumps({"type": "post", "text": "x", "ref": ["x" * 2000]})

    assert printed(JsonLines(), line) == [MalformedLine("a ref has at most 1024 characters")]


@given(
    st.text(st.characters(exclude_characters="\r\n"))
    | st.recursive(st.none() | st.text(), st.lists).map(json.dumps)
)
def test_no_line_is_an_exception(line: str):
    lines, text = JsonLines(), PlainText()
    for adapter in (lines, text):
        printed(adapter, line)
    assert lines.finish(End(1, 9)) == []
    assert text.finish(End(0)) == [Output(line)]


@given(
    st.dictionaries(
        st.sampled_from(["type", "to", "text", "id", "key", "ref", "project"]),
        st.text() | st.none() | st.integers() | st.lists(st.text()),
    )
)
def test_no_object_is_an_exception(record: dict[str, Any]):
    for kind in ("send", "reply", "post", "seen", "status", None):
        printed(JsonLines(), json.dumps(record | {"type": kind}))


@given(st.text(), st.text())
def test_a_message_is_one_line_whatever_its_text_and_comes_back_whole(text: str, nick: str):
    message = Incoming("m1", Sender("a" * 32, nick, "worker"), "@reader", text)
    line = JsonLines().render(message)

    assert line.count(b"\n") == 1
    assert line.isascii()
    record = json.loads(line)
    assert record["text"] == text
    assert record["from"]["nick"] == nick


def test_a_post_of_a_feed_is_its_own_kind_of_line():
    line = JsonLines().render(Incoming("m1", ALICE, "#main", "news"))

    assert json.loads(line)["type"] == "post"
    assert json.loads(line)["project"] == "main"


@pytest.mark.requirement("text-controls-stripped")
@given(st.text(), st.text())
def test_a_text_agent_reads_no_character_that_would_act_on_a_terminal(text: str, nick: str):
    message = Incoming("m1", Sender("a" * 32, nick, "worker"), "@reader", text)
    read = PlainText().render(message).decode() + run_environment(message)["POSTROOM_FROM"]

    assert not any(unicodedata.category(c).startswith("C") for c in read if c not in "\n\t")


@pytest.mark.requirement("text-controls-stripped")
@given(st.text(), st.text(max_size=80).filter(str.strip))
def test_in_what_was_said_before_no_text_can_pass_for_somebody_elses(text: str, nick: str):
    history = (Heard("user", text), Heard("agent", text), Heard("user", text))
    task = IncomingTask("t1", "c", Sender("a" * 32, nick, "worker"), text, history=history)
    pieces = PlainText().render_task(task).decode().split("\n\n")
    begun = [line for piece in pieces for line in piece.split("\n") if line and line[0] != " "]

    assert len(begun) == 3
    assert begun[1].startswith("you: ")


def test_what_a_run_of_a_text_agent_prints_is_the_answer_to_its_message_when_it_ends_well():
    adapter = PlainText()
    assert adapter.render(MESSAGE) == b"hi\n"
    assert printed(adapter, "yes \x1b[31m", "", "  and no", "") == []

    assert adapter.finish(End(0)) == [Reply("m1", "yes \n\n  and no")]


@pytest.mark.parametrize("end", [End(1), End(137, 9), End(0, signalled=True)])
def test_half_an_answer_is_none(end: End):
    adapter = PlainText()
    adapter.render(MESSAGE)
    adapter.feed(b"half")

    assert not any(isinstance(action, Reply | Seen) for action in adapter.finish(end))


def test_a_post_shown_to_a_text_agent_is_answered_to_nobody():
    adapter = PlainText()
    assert adapter.render(Incoming("p1", ALICE, "#main", "news")) == b"news\n"
    adapter.feed(b"interesting")

    assert adapter.finish(End(0)) == [Output("interesting")]


def test_a_text_agent_is_told_no_control_record():
    assert PlainText().render_control({"type": "stop"}) == b""


def test_there_is_an_adapter_for_each_name_of_the_configuration():
    assert {type(make_adapter(name)) for name in LINE_ADAPTERS} == {JsonLines, PlainText}
