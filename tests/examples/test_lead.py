"""The example that delegates: whom it chooses, what it tells the project, and what it does when it is started anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.program import Line, Program, running

SKILL = "review-python-source"
WORDS = ("lead", "/srv/source", SKILL)
HASTY = "lead.FIRST_PAUSE = lead.LONGEST_PAUSE = 0.001"


def agent(nick: str, *, online: bool | None = True, kind: str = "worker") -> Line:
    return {
        "uid": nick[0] * 32,
        "nick": nick,
        "kind": kind,
        "org": "default",
        "online": online,
        "card": {},
    }


REVIEWER = agent("reviewer")


@pytest.fixture
def lead(tmp_path: Path) -> Iterator[Program]:
    with running(*WORDS, cwd=tmp_path, change=HASTY) as program:
        program.tell(type="hello", nick="lead")
        yield program


def delegated(lead: Program) -> Line:
    """Let it choose; its `delegate` line."""
    lead.until("find")
    lead.tell(type="agents", ref="find", agents=[REVIEWER])
    line = lead.until("delegate")[-1]
    party = {"uid": REVIEWER["uid"], "nick": "reviewer"}
    lead.tell(type="delegated", ref="review", id="m1", task="ab12cd34" + "0" * 24, to=party)
    return line


def update(lead: Program, state: str = "working", text: str = "", **more: Any) -> None:
    lead.tell(
        **{
            "type": "task_update",
            "task": "ab12cd34" + "0" * 24,
            "ref": "review",
            "state": state,
            "final": state in ("completed", "failed", "canceled", "rejected"),
            "text": text,
            "artifacts": [],
            "artifact": None,
            "from": {"uid": REVIEWER["uid"], "nick": "reviewer"},
            "attempt": 1,
            "seq": 7,
        }
        | more
    )


def test_it_chooses_an_online_worker_with_the_skill_says_so_and_delegates_to_it(
    lead: Program,
) -> None:
    assert lead.line() == {"type": "find", "skill": SKILL, "ref": "find"}

    lead.tell(
        type="agents",
        ref="find",
        agents=[
            agent("adam", online=False),
            agent("zoe"),
            agent("reviewer"),
            agent("ben", kind="human", online=None),
        ],
    )

    assert lead.line() == {
        "type": "post",
        "text": f"@reviewer has the skill {SKILL}: asking it to review /srv/source",
        "key": "chosen",
    }
    assert lead.line() == {
        "type": "delegate",
        "to": REVIEWER["uid"],
        "skill": SKILL,
        "text": "Review the Python source in /srv/source",
        "key": "review",
        "stream": True,
        "ref": "review",
    }


def test_while_nobody_is_there_it_says_so_and_looks_again(lead: Program) -> None:
    lead.line()
    lead.tell(type="agents", ref="find", agents=[agent("reviewer", online=False)])
    said = lead.until("find")
    lead.tell(type="error", ref="find", code="timeout", detail="the control plane is away")
    said += lead.until("find")

    assert [line["key"] for line in said if line["type"] == "post"] == ["looking", "looking"]
    lead.tell(type="agents", ref="find", agents=[REVIEWER])
    assert lead.until("delegate")[-1]["to"] == REVIEWER["uid"]


def test_it_gives_up_looking_after_a_while_and_says_so(lead: Program) -> None:
    looks = 0
    line = lead.line()
    while line.get("key") != "end":
        if line["type"] == "find":
            looks += 1
            lead.tell(type="agents", ref="find", agents=[])
        line = lead.line()

    assert looks == 30
    assert "nobody with the skill" in line["text"]


def test_a_handful_of_findings_is_posted_as_they_come_each_once(lead: Program) -> None:
    delegated(lead)
    found = [f"a.py:{number} todo TODO" for number in range(9)]
    for piece in (found[:3], found[:3], found[2:]):
        text = "".join(f"{entry}\n" for entry in piece)
        update(lead, artifact={"id": "findings", "name": "findings", "text": text})
    update(lead, text="reading b.py (2 of 3)")
    update(lead, "completed", "Reviewed /srv/source.")

    said = [lead.line() for _ in range(6)]
    lead.tell(type="stop")

    assert [line["text"] for line in said[:5]] == [
        f"@reviewer found {entry}" for entry in found[:5]
    ]
    assert len({line["key"] for line in said}) == 6
    assert said[5] == {
        "type": "post",
        "text": "@reviewer has reviewed it: Reviewed /srv/source.",
        "key": "end",
    }
    assert lead.rest() == []


@pytest.mark.parametrize(
    "state, told",
    [
        ("completed", "@reviewer has reviewed it"),
        ("failed", "@reviewer has failed"),
        ("canceled", "@reviewer has stopped: the task was canceled"),
        ("rejected", "@reviewer does not do it"),
    ],
)
def test_every_end_of_the_task_is_posted(lead: Program, state: str, told: str) -> None:
    delegated(lead)

    update(lead, state, "this is why")
    assert lead.line() == {"type": "post", "text": f"{told}: this is why", "key": "end"}

    update(lead, state)
    assert lead.line()["text"] == told


@pytest.mark.parametrize("state", ["input-required", "auth-required"])
def test_a_question_of_the_reviewer_is_posted_with_how_to_answer_it(
    lead: Program, state: str
) -> None:
    delegated(lead)

    update(lead, state, "Which folder?")

    assert lead.line() == {
        "type": "post",
        "text": "@reviewer asks: Which folder? (to answer: postroom task answer ab12cd34 TEXT)",
        "key": "asks 7",
    }


def test_a_refused_delegation_is_posted(lead: Program) -> None:
    delegated(lead)

    lead.tell(type="error", ref="review", code="not-found", detail="there is no @reviewer")

    assert lead.line()["text"] == "nobody will review it: there is no @reviewer"


def test_started_anew_it_delegates_to_the_same_worker_with_the_same_key(
    lead: Program, tmp_path: Path
) -> None:
    first = delegated(lead)
    lead.tell(type="stop")
    lead.rest()

    with running(*WORDS, cwd=tmp_path) as again:
        again.tell(type="hello", nick="lead")

        assert again.line() == first


def test_a_message_is_answered(lead: Program) -> None:
    lead.line()
    lead.tell(type="message", id="m1", text="hello", reply_to=None)

    assert lead.line() == {
        "type": "reply",
        "to": "m1",
        "text": "I only see to the review of /srv/source.",
    }
