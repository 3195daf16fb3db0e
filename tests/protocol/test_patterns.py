"""Patterns that people add for a worker, and those that are proposed to them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_PATTERN
from postroom.protocol.patterns import SHELLS, added, approves, suggest


def asked(tool: str, given: dict[str, Any], kind: str = "tool") -> Any:
    return {"tool": tool, "input": given, "kind": kind}


@pytest.mark.requirement("policy-added-narrow")
@pytest.mark.parametrize(
    "pattern",
    [
        *("", " ", "*", "**", "*(git status)", "**(x)"),
        *("Bash", "bash", "shell", "B*", "*sh", "Bash()", "Bash( )", "Bash(*)", "Bash( * *)"),
        *("Bash(*rm*)", "Bash(* -rf /)", "e*(* x)", "run_*_command"),
        *("Bash(a; b)", "Bash(a && b)", "Bash(a | b)", "Bash(a > b)", "Bash(a $HOME)"),
        *("Bash(a `b`)", "Bash(a \\ b)", "Bash((a))", "Bash(a\nb)", "Bash(a\x00)"),
        *("Bash(npm", "Bash)npm(", "npm test", "Bash (npm)", "(npm)"),
        *(
            "Bash(npm \u202etset)",
            "Bash(npm\u200b test)",
            "Edit\n",
            "Edit\u2028x",
            "Ba\x1b[0msh(x)",
        ),
        *("Bash(npm\u00a0test)", "Edit\u3000x", "x" * (MAX_PATTERN + 1)),
    ],
)
def test_a_pattern_that_allows_everything_or_nothing_or_looks_like_another_is_not_added(
    pattern: str,
):
    with pytest.raises(InvalidInput):
        added(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *("Edit", "Edit(src/*)", "mcp__docs__*", "Bash(npm test)", "Bash(npm test *)", "Read(*)"),
        *("WebFetch(https://docs.example.com/*?a=1&b=2)", "Bash(grep 'a b' x)", "x" * MAX_PATTERN),
    ],
)
def test_a_plain_pattern_is_added_as_it_is(pattern: str):
    assert added(f"  {pattern} ") == pattern


@pytest.mark.parametrize(
    "tool, given, pattern",
    [
        ("Bash", {"command": "npm test"}, "Bash(npm test)"),
        ("Bash", {"command": "  npm test ", "description": "x"}, "Bash(npm test)"),
        ("shell", {"command": ["git", "status"]}, "shell(git status)"),
        ("mcp__run", {"cmd": "git status"}, "mcp__run(git status)"),
        ("Edit", {"file_path": "src/a.py", "new_string": "x"}, "Edit"),
        ("mcp__docs__find", {"query": "x"}, "mcp__docs__find"),
        ("WebFetch", {"url": "https://a.example/b?c"}, "WebFetch(https://a.example/*)"),
        ("WebFetch", {"url": "https://a.example"}, "WebFetch(https://a.example)"),
        ("WebFetch", {"url": "https://a.example@evil/b"}, "WebFetch(https://a.example@evil/b)"),
        ("WebFetch", {"url": "file:///etc/passwd"}, "WebFetch(file:///etc/passwd)"),
        ("WebFetch", {"url": "https://[x/*"}, ""),
        ("Bash", {"command": "npm test; rm -rf /"}, ""),
        ("Bash", {"command": "rm *"}, ""),
        ("Bash", {"command": "npm \u202etset"}, ""),
        ("Bash", {"command": "x" * 256 + "… [9000 characters]"}, ""),
        ("Bash", {"command": ""}, ""),
        ("Bash", {}, ""),
        ("*", {}, ""),
        ("two words", {}, ""),
        ("", {}, ""),
    ],
)
def test_what_is_proposed_is_the_command_itself_the_host_or_the_tool(
    tool: str, given: dict[str, Any], pattern: str
):
    assert suggest(asked(tool, given)) == pattern


def test_for_a_question_nothing_is_proposed():
    assert suggest(asked("AskUserQuestion", {"question": "x"}, "question")) == ""


@pytest.mark.requirement("policy-added-narrow")
@given(
    st.sampled_from([*sorted(SHELLS), "Bash", "Edit"]),
    st.text(max_size=40),
    st.text(max_size=40),
)
def test_what_is_proposed_for_a_command_allows_this_command_and_no_other(
    tool: str, command: str, other: str
):
    pattern = suggest(asked(tool, {"command": command}))
    if pattern:
        assert approves(pattern, tool, {"command": command})
        assert approves(pattern, tool, {"command": other}) is (other.strip() == command.strip())


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_a_star_stands_for_any_text(pattern: str, text: str):
    def like(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(like(pattern[1:], text[at:]) for at in range(len(text) + 1))
        return bool(text) and pattern[0] == text[0] and like(pattern[1:], text[1:])

    assert approves(f"Edit({pattern})", "Edit", {"path": text}) is like(pattern, text)


def test_no_text_of_an_agent_makes_a_pattern_slow():
    pattern = "Edit(" + "a*" * 120 + "b)"
    before = time.process_time()
    assert not approves(pattern, "Edit", {"path": "a" * 60_000})
    assert time.process_time() - before < 1.0
