"""Patterns that people add for a worker, and those that are proposed to them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_PATTERN
from postroom.protocol.patterns import SHELLS, added, approves, approving, denies, suggest, why_not
from postroom.protocol.shell import line_of


def asked(tool: str, given: dict[str, Any], kind: str = "tool") -> Any:
    return {"tool": tool, "input": given, "kind": kind, "worker": {"kind": "worker"}}


@pytest.mark.requirement("policy-added-at-once")
@pytest.mark.parametrize(
    "pattern",
    [
        *("", " ", "*", "**", "*(git status)", "**(x)"),
        *("Bash", "bash", "shell", "B*", "*sh", "Bash()", "Bash( )", "Bash(*)", "Bash( * *)"),
        *("Bash(*rm*)", "Bash(* -rf /)", "e*(* x)", "run_*_command"),
        *("Bash(a & b)", "Bash(a && *)", "Bash(a | * b)", "Bash(a > b)", "Bash(a $HOME)"),
        *(
            "Bash(cd * && b)",
            "Bash(eval b)",
            "Bash(A=1 b)",
            "Bash(find . -exec b)",
            "Bash(__ANY_TEXT__)",
        ),
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
        *("Bash(cd web && npm test * | tail *)", "Bash(a; b)", "Bash(git commit -m '*;*')"),
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
        ("Bash", {"command": "npm test; rm -rf x"}, "Bash(npm test; rm -rf x)"),
        ("Bash", {"command": "npm test > x"}, ""),
        ("shell", {"command": ["sh", "-c", "npm test; rm"]}, ""),
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


@pytest.mark.requirement("policy-added-at-once")
@given(
    st.sampled_from([*sorted(SHELLS), "Bash", "Edit"]),
    st.text(max_size=40),
    st.text(max_size=40),
)
def test_what_is_proposed_for_a_command_allows_its_commands_and_no_other(
    tool: str, command: str, other: str
):
    pattern = suggest(asked(tool, {"command": command}))
    if pattern:
        named = set(line_of(command).commands)
        said = line_of(other).commands
        assert approves(pattern, tool, {"command": command})
        assert approves(pattern, tool, {"command": other}) is (bool(said) and set(said) <= named)


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


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@pytest.mark.parametrize(
    "path",
    [
        "/workspace/docs/../.github/workflows/ci.yml",
        "/workspace/docs/../../home/worker/.bashrc",
        "/workspace/docs/a/../../x",
        "/workspace/docs/./../x",
        "/workspace/docs//../x",
        "//workspace/docs/../x",
        "/workspace/docs/..",
    ],
)
@pytest.mark.parametrize("field", ["file_path", "path", "notebook_path", "filePath"])
def test_a_path_that_leaves_the_folder_is_not_in_it(field: str, path: str):
    assert not approves("edit(/workspace/docs/*)", "edit", {field: path, "content": "x"})
    if path.startswith("/workspace/docs/"):
        assert denies("edit(/workspace/docs/*)", "edit", {field: path})  # by either reading


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@pytest.mark.parametrize(
    "path",
    ["/workspace/docs/a", "/workspace//docs/./a", "/workspace/x/../docs/a", "//workspace/docs/a"],
)
def test_a_path_that_is_in_the_folder_is_taken_however_it_is_written(path: str):
    assert approves("edit(/workspace/docs/*)", "edit", {"file_path": path})
    assert approves("edit(/workspace//./docs/*)", "edit", {"file_path": path})
    assert denies("edit(/workspace/docs/*)", "edit", {"file_path": path})


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@pytest.mark.parametrize(
    "pattern, tool, said",
    [
        ("edit(/w/docs/*)", "edit", {"file_path": "/w/docs/a", "path": "/etc/passwd"}),
        ("edit(/w/docs/*)", "edit", {"file_path": "/w/docs/a", "path": "/w/docs/b"}),
        ("edit(/w/docs/*)", "edit", {"file_path": "/w/docs/a", "path": ["/etc/passwd"]}),
        ("edit(/w/docs/*)", "edit", {"path": "/w/docs/a", "command": "rm -rf ~"}),
        ("Bash(npm test *)", "Bash", {"command": "npm test a", "cmd": "rm -rf ~"}),
        ("Bash(npm test *)", "Bash", {"command": "npm test a", "script": ["rm"]}),
        ("Bash(npm test *)", "Bash", {"command": "npm test a", "path": "/x"}),
        ("edit(/w/docs/*)", "edit", {"path": "/w/docs/a", "File-Path": "/etc/passwd"}),
        ("edit(/w/docs/*)", "edit", {"path": "/w/docs/a", "filename": "/etc/passwd"}),
        ("edit(/w/docs/*)", "edit", {"path": "/w/docs/a", "paths": ["/etc/passwd"]}),
        ("edit(/w/docs/*)", "edit", {"path": "/w/docs/a", "edits": [{"file": "/etc/passwd"}]}),
        ("edit(/w/docs/*)", "edit", {"path": "/w/docs/a", "changes": {"/etc/passwd": {}}}),
        ("Bash(npm test *)", "Bash", {"command": "npm test a", "Command": "rm -rf ~"}),
        ("execute(npm)", "execute", {"command": "npm", "args": ["run", "evil"]}),
        ("Fetch(https://a.b/*)", "Fetch", {"url": "https://a.b/", "uri": "https://evil/"}),
        ("Fetch(https://a.b/*)", "Fetch", {"url": "https://evil/", "path": "https://a.b/"}),
        ("Fetch(https://a.b/*)", "Fetch", {"path": "https://evil/", "url": "https://a.b/"}),
    ],
)
def test_an_input_that_a_tool_could_read_in_two_ways_is_asked(
    pattern: str, tool: str, said: dict[str, Any]
):
    assert not approves(pattern, tool, said)
    assert approves(tool, tool, said)  # every use of the tool
    assert suggest(asked(tool, said)) in {"", tool}
    for text in said.values():
        plainly = isinstance(text, str) or all(isinstance(each, str) for each in text)
        words = text if isinstance(text, str) else " ".join(text) if plainly else "/etc/passwd"
        assert denies(f"{tool}(*{words})", tool, said)


def test_what_is_searched_for_decides_nothing_beside_where():
    said = {"pattern": "/w/docs/secret", "path": "/etc"}
    assert not approves("Grep(/w/docs/*)", "Grep", said)
    assert approves("Grep(/etc)", "Grep", said)
    assert approves("Glob(*.py)", "Glob", {"pattern": "src/*.py"})


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@pytest.mark.parametrize(
    "url",
    [
        "https://a.b/public/../private",
        "https://a.b/public/%2e%2E/private",
        "https://a.b/public/.%2e",
        "https://a.b/public/..?x",
        "https://a.b/public/..\\private",
        "https://a.b/public/..%2fprivate",
        "https://a.b/public/\t../private",
        "https://a.b/public/..;/" + "../private",
    ],
)
def test_a_url_that_may_lead_elsewhere_is_asked(url: str):
    assert not approves("Fetch(https://a.b/public/*)", "Fetch", {"url": url})


def test_a_plain_url_is_taken():
    for end in ("", "a.b/c..d?x=1#..", "a%20b", "...", ".well-known/x"):
        assert approves(
            "Fetch(https://a.b/public/*)", "Fetch", {"url": f"https://a.b/public/{end}"}
        )


@pytest.mark.requirement("coding-policy-no-shell-tricks")
def test_each_command_of_a_line_is_allowed_by_itself_and_for_its_folder():
    rules = ("Bash(npm test *)", "Bash(cd web && npm test * | tail *)", "Bash(git status)")

    def allowed(command: str) -> tuple[str, ...]:
        return approving(rules, "Bash", {"command": command})

    assert allowed("npm test a; git status") == (rules[0], rules[2])
    assert allowed("cd web && npm test a 2>&1 | tail -5 >/dev/null") == (rules[1],)
    assert allowed("cd ./web/../web && npm test a") == (rules[1],)
    for other in (
        "npm test a | tail -5",  # named in another folder
        "cd web && git status",
        "cd api && npm test a",
        "cd web; npm test a",
        "cd web || npm test a",
        "git status && rm x",
        "git status > x",
    ):
        assert not allowed(other), other


@pytest.mark.requirement("policy-added-at-once")
@pytest.mark.parametrize(
    "given, why",
    [
        ({"command": "a > out.txt"}, "it has a redirection to out.txt"),
        ({"command": "A=1 b"}, "it has an assignment in front: A=1"),
        ({"command": "a $(b)"}, "it has a substitution: $(b)"),
        ({"command": "ls | xargs rm"}, "it has xargs, which runs what it is given"),
        ({"command": "find . -exec rm x"}, "it has find -exec"),
        ({"command": "rm *"}, "it has a *, which in a rule is any text"),
        ({"command": "x" * 300}, "it is over 250 characters"),
        ({"command": "a", "script": "b"}, "it names more than one thing"),
        ({"command": "a; b"}, ""),
    ],
)
def test_where_no_rule_can_be_made_it_is_said_why(given: dict[str, Any], why: str):
    assert why_not(asked("Bash", given)) == why
