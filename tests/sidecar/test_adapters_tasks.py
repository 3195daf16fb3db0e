"""Tasks in the adapters' lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.protocol.limits import MAX_TEXT_ANSWER
from postroom.protocol.verbs import (
    VERBS,
    AnswerTask,
    Artifact,
    AskAuth,
    AskInput,
    Canceled,
    CancelTask,
    Complete,
    Delegate,
    Fail,
    Progress,
    Reject,
)
from postroom.sidecar.adapters import (
    End,
    Heard,
    IncomingTask,
    JsonLines,
    MalformedLine,
    Output,
    PlainText,
    Said,
    Sender,
)
from postroom_a2a.messages import MAX_CONTEXT
from tests.sidecar.printing import printed

ALICE = Sender("a" * 32, "alice", "worker")
ID = "0123456789abcdef" * 2
TASK = IncomingTask(ID, "talk", ALICE, "add", sent_at="2026-01-01T00:00:00Z")


def said(kind: str, **fields: Any) -> list[Said]:
    return printed(JsonLines(), json.dumps({"type": kind, **fields}))


@pytest.mark.parametrize(
    "line, action",
    [
        ({"type": "update", "text": "x"}, Progress("", "x")),
        ({"type": "update", "task": ID, "text": "x", "ref": 7}, Progress(ID, "x", 7)),
        ({"type": "artifact", "text": "x"}, Artifact("", "x")),
        (
            {"type": "artifact", "task": ID, "text": "x", "name": "n", "id": "i"}
            | {"append": True, "last": False},
            Artifact(ID, "x", "n", "i", True, False),
        ),
        ({"type": "complete"}, Complete("")),
        ({"type": "complete", "task": None, "text": "done"}, Complete("", "done")),
        ({"type": "fail", "text": "x"}, Fail("", "x")),
        ({"type": "reject"}, Reject("")),
        ({"type": "ask", "text": "x"}, AskInput("", "x")),
        ({"type": "ask_auth", "text": "x"}, AskAuth("", "x")),
        ({"type": "canceled", "task": ID}, Canceled(ID)),
        ({"type": "delegate", "to": "@bob", "text": "x"}, Delegate("@bob", "", "x")),
        (
            {"type": "delegate", "skill": "s", "text": "x", "key": "k", "stream": True}
            | {"context": "c", "ref": {"a": 1}},
            Delegate("", "s", "x", "k", True, "c", {"a": 1}),
        ),
        ({"type": "cancel_task", "task": ID}, CancelTask(ID)),
        ({"type": "cancel_task", "task": ID, "reason": "r"}, CancelTask(ID, "r")),
        ({"type": "answer_task", "task": ID, "text": "x"}, AnswerTask(ID, "x")),
    ],
)
def test_a_line_about_a_task_is_the_action_it_says(line: dict[str, Any], action: Said):
    assert printed(JsonLines(), json.dumps(line)) == [action]


@pytest.mark.parametrize(
    "line",
    [
        {"type": "update"},
        {"type": "update", "task": "x", "text": "x"},
        {"type": "update", "task": 7, "text": "x"},
        {"type": "artifact", "text": "x", "append": 1},
        {"type": "artifact", "text": "x", "last": None},
        {"type": "artifact", "text": "x", "id": "i" * 201},
        {"type": "complete", "text": ["x"]},
        {"type": "fail"},
        {"type": "ask", "text": None},
        {"type": "delegate", "text": "x"},
        {"type": "delegate", "to": "@bob"},
        {"type": "delegate", "to": "@bob", "text": " \n"},
        {"type": "ask", "text": ""},
        {"type": "delegate", "to": "@bob", "text": "x", "key": "k" * 257},
        {"type": "delegate", "to": "@bob", "text": "x", "context": "c" * (MAX_CONTEXT + 1)},
        {"type": "cancel_task"},
        {"type": "cancel_task", "task": ""},
        {"type": "cancel_task", "task": ID, "reason": "r" * 501},
        {"type": "answer_task", "task": ID},
        {"type": "answer_task", "task": ID, "text": ""},
        {"type": "answer_task", "task": "current", "text": "x"},
    ],
)
def test_a_wrong_field_is_told_apart_with_its_reference(line: dict[str, Any]):
    (action,) = printed(JsonLines(), json.dumps(line | {"ref": 7}))

    assert isinstance(action, MalformedLine)
    assert action.ref == 7


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(ID),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
LINES = [name for name, action in VERBS.items() if action.verb.line]
FIELDS = ("task", "text", "name", "id", "append", "last", "to", "skill", "key", "stream", "context")


@pytest.mark.requirement("sidecar-lines-survive")
@given(
    st.sampled_from([*LINES, "dance"]),
    st.dictionaries(st.sampled_from([*FIELDS, "reason", "ref"]), values),
)
def test_no_line_raises_and_each_is_one_action(kind: str, record: dict[str, Any]):
    line = json.dumps({**record, "type": kind})

    assert len(printed(JsonLines(), line)) == 1
    text = PlainText()
    text.render_task(TASK)
    assert printed(text, line) == []
    assert len(text.finish(End(0))) == 2


@pytest.mark.parametrize("depth", [400, 900, 950, 990, 2000, 100_000])
def test_no_depth_of_nesting_raises(depth: int):
    line = '{"type":"complete","ref":' + "[" * depth + "]" * depth + "}"

    (action,) = printed(JsonLines(), line)
    assert not isinstance(action, Complete) or depth < 600


@given(st.text(), st.text(), st.lists(st.tuples(st.sampled_from(["user", "agent"]), st.text())))
def test_a_task_is_one_line_whatever_its_text_and_comes_back_whole(
    text: str, context: str, history: list[tuple[str, str]]
):
    task = IncomingTask(
        ID, context, ALICE, text, "sums", 2, True, tuple(Heard(*said) for said in history)
    )
    line = JsonLines().render_task(task)

    assert line.count(b"\n") == 1
    record = json.loads(line)
    assert (record["type"], record["id"], record["text"]) == ("task", ID, text)
    assert record["from"] == {"uid": "a" * 32, "nick": "alice", "kind": "worker"}
    assert (record["context"], record["skill"]) == (context, "sums")
    assert (record["attempt"], record["resumed"]) == (2, True)
    found = [(said["role"], said["text"]) for said in record.get("history", [])]
    assert found == history


def test_a_fresh_task_has_no_history():
    assert "history" not in json.loads(JsonLines().render_task(TASK))


def test_what_a_run_of_a_text_agent_prints_is_the_result_of_its_task_when_it_ends_well():
    adapter = PlainText()
    assert adapter.render_task(TASK) == b"add\n"
    adapter.feed(b"42\x1b[2")
    adapter.feed(b"J\n43")

    assert adapter.finish(End(0)) == [Artifact(ID, "42\n43"), Complete(ID)]


def test_a_text_agent_that_prints_nothing_has_done_its_task_all_the_same():
    adapter = PlainText()
    adapter.render_task(TASK)

    assert adapter.finish(End(0)) == [Complete(ID)]


@pytest.mark.parametrize("complaint, said", [("", ""), ("no \x1b[31mkey\n", ": no key")])
def test_an_exit_code_of_a_text_agent_fails_its_task(complaint: str, said: str):
    adapter = PlainText()
    adapter.render_task(TASK)
    adapter.feed(b"half")

    assert adapter.finish(End(2, stderr=complaint)) == [
        Fail(ID, f"exit code 2{said}"),
        Output("half"),
    ]


@pytest.mark.parametrize("end", [End(137, 9), End(0, signalled=True), End(1, signalled=True)])
def test_a_text_agent_that_was_ended_has_said_nothing_of_its_task(end: End):
    adapter = PlainText()
    adapter.render_task(TASK)
    adapter.feed(b"half")

    assert adapter.finish(end) == [Output("half")]


@given(st.lists(st.text(st.characters(exclude_characters="\n")), max_size=5))
def test_an_answer_of_a_text_agent_is_whole_or_it_is_none(lines: list[str]):
    adapter = PlainText()
    adapter.render_task(TASK)
    for line in ["x" * (MAX_TEXT_ANSWER // 2), *lines, "x" * (MAX_TEXT_ANSWER // 2)]:
        printed(adapter, line)

    (action,) = adapter.finish(End(0))
    assert isinstance(action, Fail)
