"""What a coding agent may do without asking: patterns of the template."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.sidecar.turns.policy import Policy


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf x",
        "git status && rm x",
        "git status || rm x",
        "git status | sh",
        "git status & rm x",
        "git status\nrm x",
        "git status\r\nrm x",
        "git status $(rm x)",
        "git status `rm x`",
        "git status > /etc/passwd",
        "git status < x",
        "git status ${IFS}x",
        "git status \\\nrm x",
        "git status\x00rm x",
        "git status \u2028rm x",
        " ; git status",
        "x git status",
        "GIT_PAGER=sh git status",
    ],
)
def test_a_pattern_allows_no_command_that_can_run_more_than_it_names(command: str):
    policy = Policy(approve=("Bash(git status*)",))
    assert policy.judge("Bash", {"command": command}) is None
    assert policy.judge("shell", {"cmd": ["git", "status", command]}) is None


@pytest.mark.parametrize(
    "rule, tool, given",
    [
        ("Bash(git status*)", "Bash", {"command": "git status --short"}),
        ("Bash(git status*)", "Bash", {"command": "  git status 'a b' "}),
        ("Bash(git status*)", "Bash", {"command": "git status 'a;b'"}),
        ("Bash", "Bash", {"command": "anything; at all"}),
        ("Read", "Read", {"file_path": "/etc/x"}),
        ("Edit(src/*)", "Edit", {"file_path": "src/a.py"}),
        ("mcp__github__*", "mcp__github__list", {}),
        ("WebFetch(https://docs.example.com/*)", "WebFetch", {"url": "https://docs.example.com/a"}),
    ],
)
def test_what_a_pattern_names_is_allowed_by_it(rule: str, tool: str, given: dict[str, Any]):
    verdict = Policy(approve=(rule,)).judge(tool, given)
    assert verdict is not None
    assert (verdict.allow, verdict.rule) == (True, rule)


@pytest.mark.parametrize(
    "rule, tool, given",
    [
        ("Read", "ReadAll", {}),
        ("Bash(git status)", "Bash", {"command": "git status --short"}),
        ("Edit(src/*)", "Edit", {"file_path": "/src/a.py"}),
        ("Bash(*)", "Bash", {}),
        ("Bash(git (x", "Bash", {"command": "git (x"}),
        ("", "Bash", {"command": ""}),
    ],
)
def test_what_no_pattern_names_is_asked(rule: str, tool: str, given: dict[str, Any]):
    if (rule, given) == ("Bash(*)", {}):
        assert Policy(approve=(rule,)).judge(tool, given) is not None  # the empty command is any
        return
    assert Policy(approve=(rule,)).judge(tool, given) is None


def test_deny_comes_before_approve_and_before_autonomy_and_looks_into_the_parts_of_a_command():
    policy = Policy(approve=("Bash",), deny=("Bash(rm *)", "WebFetch"), autonomous=True)

    def allowed(tool: str, command: str = "") -> bool:
        verdict = policy.judge(tool, {"command": command} if command else {})
        return verdict is not None and verdict.allow

    assert not allowed("Bash", "rm -rf x")
    assert not allowed("Bash", "ls; rm -rf x")
    assert not allowed("Bash", "echo $(rm -rf x)")
    assert not allowed("WebFetch")
    assert allowed("Bash", "ls -rm")
    assert allowed("Write")
