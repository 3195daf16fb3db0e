"""The queue of what waits for a person."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.lines.approvals import explained
from postroom.view.approvals import OfferedAnswer, choices_in, choices_of, ending
from postroom.view.needs import Need, NeedKind, Queue, answerable, key_of

NOW = 1_000_000.0


def need(id_: str, since: float = 0.0, left: float | None = None, seq: int = 1) -> Need:
    expires = None if left is None else NOW + left
    record = {"seq": seq, "kind": "tool", "task": None}
    return Need(NeedKind.APPROVAL, id_, "w", "coder", "Bash: x", since, expires, record)


needs = st.lists(
    st.builds(
        need,
        st.sampled_from("abcdefgh"),
        st.floats(0, NOW),
        st.one_of(st.none(), st.floats(0, 240)),
        st.integers(1, 2),
    ),
    unique_by=key_of,
    max_size=8,
)


@given(st.lists(st.tuples(needs, st.integers(0, 7)), min_size=1, max_size=6))
def test_each_need_is_new_once_and_what_was_answered_waits_no_more(steps: list[tuple[Any, int]]):
    queue = Queue()
    before: set[Any] = set()
    answered: set[Any] = set()
    for waiting, place in steps:
        said = {key_of(one) for one in waiting}
        answered &= said  # the post room has said that it waits no more
        new = {key_of(one) for one in queue.take(waiting)}
        here = {key_of(one) for one in queue.order}
        assert here == said - answered
        assert new == here - before
        before = here | (before & said)
        if order := queue.order:
            done = order[place % len(order)]
            queue.answered(done)
            answered.add(key_of(done))
            assert done not in queue


@given(needs, st.sampled_from([1, -1]))
def test_going_on_passes_each_once_and_comes_back(given_needs: list[Need], step: int):
    queue = Queue()
    queue.take(given_needs)
    order = queue.order
    one = queue.beside(None, step)
    if not order:
        assert one is None
        return
    passed = []
    for _ in order:
        assert one is not None
        assert order[queue.place(one)[0] - 1] == one
        passed.append(key_of(one))
        one = queue.beside(one, step)
    assert sorted(passed) == sorted(map(key_of, order))
    assert one is not None
    assert key_of(one) == passed[0]


def test_after_an_answer_comes_what_was_not_put_off():
    queue = Queue()
    first, second, third = need("a", 1.0), need("b", 2.0), need("c", 3.0)
    queue.take([first, second, third])
    queue.later(first)
    assert queue.onward(second) == third
    assert queue.onward(third) == second
    queue.answered(second)
    assert queue.onward(third) is None
    queue.take([third])
    queue.take([first, third])  # it was gone, and is asked anew
    assert queue.onward(third) == first


def test_what_no_dialog_answers_is_not_in_the_queue():
    turn = need("a")
    alert = Need(NeedKind.ALERT, "9", "w", "coder", "look", record={})
    assert answerable([turn, alert]) == [turn]


@pytest.mark.parametrize(
    "state, channel, by, said",
    [
        ("allowed", "attach", "maria", "allowed by @maria over attach (go on)"),
        ("denied", "policy", "", "denied by the rules of @coder"),
        ("withdrawn", "agent", "", "withdrawn: @coder no longer asks"),
        ("withdrawn", "room", "", "withdrawn: what @coder asked it for has ended"),
        ("expired", "clock", "", "expired, which counts as deny"),
    ],
)
def test_it_is_said_how_an_approval_ended(state: str, channel: str, by: str, said: str):
    answer = {"channel": channel, "reason": "go on", "by": {"uid": "u", "nick": by} if by else None}
    worker = {"uid": "w", "nick": "coder"}
    approval: Any = {"state": state, "answer": answer, "default": "deny", "worker": worker}
    assert ending(approval) == said


def test_a_pattern_is_explained_in_a_sentence():
    assert "exactly this: make\\u{202e} x" in explained("Bash(make\u202e x)", "@coder")
    assert "where it fits npm *" in explained("Bash(npm *)", "@coder")
    assert "uses Edit without asking, whatever for" in explained("Edit", "@coder")


def test_choices_are_found_however_an_agent_says_them():
    assert choices_in("Which?\n- main\n- next\n") == [OfferedAnswer("main"), OfferedAnswer("next")]
    assert choices_in("- main\n- next") == []
    assert choices_in("I did:\n- this") == []
    odd: list[Any] = [None, 7, {"questions": 7}, {"questions": [{"options": [1, {"label": 2}]}]}]
    assert [choices_of(one or {}) for one in odd if not isinstance(one, int)] == [[], [], []]
