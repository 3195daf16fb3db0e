"""`postroom policy` and `approve --always`, against a post room that answers as it is told."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.client import belonging
from postroom.errors import PinRequired, problem
from postroom_a2a.times import format_time
from tests.cli.conftest import Run
from tests.cli.test_approvals import CONTROL, ID, MARIA, UID, answers, approval, said, settled
from tests.client.standin import Standin

POLICY = "/v1/workers/coder/policy"
BY_UID = f"/v1/workers/{UID}/policy"


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if nobody above these tests were an agent."""
    for name in belonging.MARKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(belonging.refuse_agents, "__defaults__", (os.environ, tmp_path / "proc"))


def policy(*added: str, **more: Any) -> dict[str, Any]:
    at = format_time(time.time() - 90_000)
    shown: dict[str, Any] = {
        "worker": {"uid": UID, "nick": "coder", "kind": "worker"},
        "template": "/home/maria/claude-code.toml",
        "autonomous": False,
        "auto_deny": ["Bash(*git push*)"],
        "auto_approve": ["Read"],
        "autonomy": [],
        "added": [{"pattern": pattern, "by": MARIA, "at": at} for pattern in added],
    }
    return shown | more


def test_each_rule_is_shown_with_where_it_comes_from_in_the_order_that_counts(
    standin: Standin, postroom: Run
):
    standin.answer(f"GET {POLICY}", policy("Bash(npm test)"))
    done = postroom("policy", "@coder")
    assert done.out.splitlines() == [
        "RULE   PATTERN           FROM",
        "deny   Bash(*git push*)  template claude-code.toml",
        "allow  Read              template claude-code.toml",
        "allow  Bash(npm test)    added by @maria 1 d ago, kept by the post room",
        "ask    everything else   template claude-code.toml",
    ]


def test_a_hostile_pattern_of_a_template_does_nothing_to_the_terminal(
    standin: Standin, postroom: Run
):
    hostile = {
        "auto_deny": [],
        "auto_approve": ["Bash(\x1b[2J\u202egnp)"],
        "template": "\x1b]0;x\x07",
    }
    standin.answer(f"GET {POLICY}", policy(autonomous=True, **hostile))
    done = postroom("policy", "@coder")
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    assert "its template" in done.out


def test_patterns_are_removed_and_added_and_nothing_is_where_one_is_refused(
    standin: Standin, postroom: Run
):
    for method in ("POST", "DELETE", "GET"):
        standin.answer(f"{method} {POLICY}", policy("Bash(npm test)"))
    refused = postroom("policy", "@coder", "--allow", "Bash(npm test)", "--allow", "Bash")
    assert (refused.status, standin.calls(f"POST {POLICY}")) == (2, [])
    done = postroom("policy", "@coder", "--allow", "Bash(npm test)", "--remove", "Bash(npm run *)")
    assert done.status == 0, done.err
    assert [each.body for each in standin.calls(f"POST {POLICY}")] == [
        {"pattern": "Bash(npm test)", "channel": "cli"}
    ]
    assert [each.body for each in standin.calls(f"DELETE {POLICY}")] == [
        {"pattern": "Bash(npm run *)"}
    ]


def test_a_coding_agent_does_not_change_its_own_policy_by_mistake(
    standin: Standin, postroom: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLAUDECODE", "1")
    standin.answer(f"GET {POLICY}", policy())
    assert postroom("policy", "@coder").status == 0
    assert postroom("policy", "@coder", "--allow", "Edit").status == 6
    assert standin.calls(f"POST {POLICY}") == []


@pytest.mark.parametrize(
    "words, pattern",
    [((), "Bash(make deploy)"), (("Bash(make *)",), "Bash(make *)")],
)
def test_always_allows_what_is_asked_and_then_the_pattern_and_says_where_it_is_kept(
    standin: Standin, postroom: Run, tmp_path: Path, words: tuple[str, ...], pattern: str
):
    answers(standin, approval(), said(settled("allowed")))
    standin.answer(f"POST {BY_UID}", problem(PinRequired("your PIN is needed")), 403)
    standin.answer(f"POST {BY_UID}", policy(pattern))
    pin = tmp_path / "pin"
    pin.write_text("4711\n")
    first = postroom("approve", "7b1c", "--always", *words)
    assert (first.status, "your PIN is needed" in first.err) == (6, True)
    done = postroom("approve", "7b1c", "--pin-file", str(pin), "--always", *words)
    assert done.status == 0, done.err
    assert done.out.splitlines()[-3:] == [
        "allowed 7b1c5e2f @coder",
        f"@coder does not ask for {pattern} any more; kept by the post room",
        f"  postroom policy @coder --remove '{pattern}'",
    ]
    assert standin.calls(f"POST {BY_UID}")[-1].body == {
        "pattern": pattern,
        "channel": "cli",
        "pin": "4711",
    }


@pytest.mark.parametrize(
    "given, words",
    [
        ({"command": "make deploy > out.txt"}, ()),
        ({"command": "make deploy"}, ("Bash",)),
        ({"command": "make deploy"}, ("Bash(make *)", "--input", "{}")),
        ({"command": "make deploy"}, ("Bash(make *)", "ffff")),
    ],
)
def test_where_no_pattern_can_be_added_nothing_is_decided(
    standin: Standin, postroom: Run, given: dict[str, Any], words: tuple[str, ...]
):
    answers(standin, approval(input=given), said(settled("allowed")))
    assert postroom("approve", ID, "--always", *words).status == 2
    assert standin.calls(f"POST {CONTROL}") == []
