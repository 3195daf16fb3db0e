from __future__ import annotations

import json
from typing import Any

import pytest

from postroom.protocol.events import EventKind
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters import End
from postroom.sidecar.adapters.claude import SERVERS, Claude
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, Withdrawn, Write
from tests.sidecar.adapters.replay import begin_turn, check, events, made, played

SESSION = "71af99d2-42d4-4da8-ae45-57e58c798576"


def line(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def fields(case: str, kind: EventKind) -> list[dict[str, Any]]:
    return [dict(event.fields) for event in events(played(f"claude/{case}.jsonl"), kind)]


def asks(tool: str, request: str = "r1", **given: Any) -> bytes:
    asked = {"subtype": "can_use_tool", "tool_name": tool, "input": given, "tool_use_id": "t1"}
    return line(type="control_request", request_id=request, request=asked)


def result(**more: Any) -> bytes:
    return line(
        **{"type": "result", "subtype": "success", "is_error": False, "result": "ok"} | more
    )


def working(**setup: Any) -> Claude:
    adapter = made("claude", **setup)
    begin_turn(adapter)
    assert isinstance(adapter, Claude)
    return adapter


def test_a_turn_with_a_tool_that_was_allowed():
    said = played("claude/perm_allow.jsonl")
    command = "echo hi > p1.txt; cat p1.txt"
    [call] = fields("perm_allow", EventKind.TOOL_CALL)
    assert (call["call"], call["tool"], call["title"]) == ("toolu_fake001", "Bash", command)
    [asked] = [item for item in said if isinstance(item, Asked)]
    assert (asked.tool, asked.title, asked.call) == ("Bash", command, "toolu_fake001")
    assert asked.input["command"] == command
    assert fields("perm_allow", EventKind.TOOL_RESULT) == [
        {"call": "toolu_fake001", "status": "ok", "output": "hi"}
    ]
    assert fields("perm_allow", EventKind.RESULT) == [
        {"status": "completed", "text": "All done. The fake model says hello."}
    ]
    [started] = fields("perm_allow", EventKind.STARTED)
    assert started == {
        "session": SESSION,
        "model": "claude-opus-5-5",
        "version": "2.1.330",
        "resumed": False,
    }


def test_a_denied_tool_is_denied_and_the_turn_goes_on():
    [denied] = fields("perm_deny", EventKind.TOOL_RESULT)
    assert denied["status"] == "denied"
    assert denied["output"] == "Denied by operator bob"
    [end] = fields("perm_deny", EventKind.RESULT)
    assert end["status"] == "completed"


def test_a_failed_command_has_its_exit_code():
    [failed] = fields("shell_fail", EventKind.TOOL_RESULT)
    assert (failed["status"], failed["exit_code"]) == ("error", 3)


def test_a_failed_model_is_a_failed_turn_though_it_says_success():
    [again, failed] = fields("model_401", EventKind.ERROR)
    assert again["code"] == failed["code"] == "401"
    assert not again.get("fatal")
    assert again["text"] == "the model failed (authentication_failed, 401); it tries again (1 of 1)"
    assert again["retry_in"] == 0.61
    assert failed["fatal"]
    [end] = fields("model_401", EventKind.RESULT)
    assert end["status"] == "failed"
    assert end["reason"] == "Failed to authenticate. API Error: 401 scripted failure"


def test_usage_is_counted_once_for_each_turn():
    used = fields("two_turns", EventKind.USAGE)
    assert [(one["input_tokens"], one["output_tokens"]) for one in used] == [(120, 15), (240, 30)]
    assert [round(one["cost"], 8) for one in used] == [0.00078, 0.00156]
    assert len(fields("two_turns", EventKind.STARTED)) == 1


def test_usage_has_sub_agents_and_what_was_cached():
    models = {
        "large": {"inputTokens": 1, "cacheReadInputTokens": 20, "cacheCreationInputTokens": 300},
        "small": {"inputTokens": 4000, "outputTokens": 5, "costUSD": 0.5},
    }
    [used] = events(working().feed(result(model_usage_since_last_result=models)), EventKind.USAGE)
    assert used.fields == {
        "input_tokens": 4321,
        "output_tokens": 5,
        "cached_tokens": 20,
        "cost": 0.5,
    }


def test_what_a_session_cost_before_it_was_resumed_is_not_counted_again():
    """Versions that do not say what a result is about count from the session's begin."""
    adapter = working(session=SESSION)
    first = adapter.feed(result(total_cost_usd=3.0, usage={"input_tokens": 10}))
    begin_turn(adapter)
    second = adapter.feed(result(total_cost_usd=3.5, usage={"input_tokens": 10}))
    assert [dict(event.fields) for event in events(first + second, EventKind.USAGE)] == [
        {"input_tokens": 10, "output_tokens": 0},
        {"input_tokens": 10, "output_tokens": 0, "cost": 0.5},
    ]


def test_what_a_sub_agent_says_names_the_call_that_started_it():
    said = {"content": [{"type": "text", "text": "inner"}]}
    adapter = working()
    [text] = adapter.feed(line(type="assistant", message=said, parent_tool_use_id="t9"))
    assert isinstance(text, Event)
    assert text.fields == {"text": "inner", "parent": "t9"}
    [end] = events(adapter.feed(result(result="")), EventKind.RESULT)
    assert end.fields["text"] == ""


def test_an_allowed_tool_gets_its_input_as_it_was_or_as_a_person_has_changed_it():
    adapter = working()
    adapter.feed(asks("Bash", "r1", command="ls") + asks("Bash", "r2", command="ls"))
    for request, changed, expected in (
        ("r1", None, {"command": "ls"}),
        ("r2", {"command": "ls -l"}, {"command": "ls -l"}),
    ):
        answer = json.loads(adapter.answer(request, Answer(allow=True, input=changed)))
        assert answer["response"] == {
            "subtype": "success",
            "request_id": request,
            "response": {"behavior": "allow", "updatedInput": expected},
        }


def test_always_allow_is_never_answered():
    adapter = working()
    suggestions = [{"type": "addRules", "behavior": "allow", "destination": "localSettings"}]
    asked = json.loads(asks("Bash", command="ls"))
    asked["request"]["permission_suggestions"] = suggestions
    adapter.feed(line(**asked))
    assert b"updatedPermissions" not in adapter.answer("r1", Answer(allow=True))


def test_a_question_is_answered_by_words():
    adapter = working()
    options = [{"label": "red"}, {"label": "blue"}]
    questions = [{"question": "which?", "options": options}]
    [asked] = adapter.feed(asks("AskUserQuestion", questions=questions))
    assert isinstance(asked, Asked)
    assert (asked.question, asked.title, asked.options) == (True, "which?", ("red", "blue"))
    answer = json.loads(adapter.answer("r1", Answer(allow=True, text="blue\n")))
    assert answer["response"]["response"]["updatedInput"] == {
        "questions": questions,
        "answers": {"which?": "blue"},
    }


@pytest.mark.parametrize(
    "text, answers",
    [("red\nbig", {"a?": "red", "b?": "big"}), ("both", {"a?": "both", "b?": "both"})],
)
def test_several_questions_take_a_line_each(text: str, answers: dict[str, str]):
    adapter = working()
    [asked] = adapter.feed(
        asks("AskUserQuestion", questions=[{"question": "a?"}, {"question": "b?"}])
    )
    assert isinstance(asked, Asked)
    assert (asked.title, asked.options) == ("a?\nb?", ())
    answer = json.loads(adapter.answer("r1", Answer(allow=True, text=text)))
    assert answer["response"]["response"]["updatedInput"]["answers"] == answers


def test_an_interrupted_turn_withdraws_its_question():
    adapter = working()
    adapter.feed(asks("Bash", command="ls"))
    assert json.loads(adapter.interrupt())["request"] == {"subtype": "interrupt"}
    said = adapter.feed(
        line(type="control_cancel_request", request_id="r1")
        + line(type="control_response", response={"subtype": "success", "request_id": "x"})
        + result(
            subtype="error_during_execution",
            is_error=True,
            terminal_reason="aborted_tools",
            result=None,
        )
    )
    assert said[0] == Withdrawn("r1")
    assert [dict(event.fields) for event in events(said, EventKind.RESULT)] == [
        {"status": "interrupted", "reason": "the turn was interrupted", "text": ""}
    ]


def test_an_unknown_request_is_refused_so_that_it_does_not_wait():
    said = working().feed(line(type="control_request", request_id="r1", request={"subtype": "new"}))
    assert isinstance(said[-1], Write)
    refusal = json.loads(said[-1].data)
    assert refusal["response"]["subtype"] == "error"
    assert refusal["response"]["request_id"] == "r1"


def test_a_result_that_no_turn_waits_for_ends_none():
    adapter = working()
    adapter.feed(result())
    assert events(adapter.feed(result()), EventKind.RESULT) == []


def test_a_session_that_was_never_stored_is_given_up():
    adapter = working(session=SESSION)
    lost = result(
        subtype="error_during_execution",
        is_error=True,
        result=None,
        errors=[f"No conversation found with session ID: {SESSION}"],
    )
    said = [*adapter.feed(lost), *adapter.finish(End(1))]
    assert events(said, EventKind.ERROR)[0].fields["code"] == "session-lost"
    assert adapter.session == ""
    check(said, turns=1)


def test_the_command_resumes_its_session_and_asks_for_nothing_only_where_it_may():
    plain = Claude(Setup(("claude", "--model", "m"))).command()
    assert plain[:3] == ("claude", "--model", "m")
    assert "--resume" not in plain
    assert "bypassPermissions" not in plain
    free = Claude(Setup(("claude",), session="s1", autonomous=True)).command()
    assert free[-4:] == ("--resume", "s1", "--permission-mode", "bypassPermissions")


def test_instructions_and_servers_are_where_claude_code_reads_them():
    servers = (
        McpServer("files", ("mcp-files", "/work"), env={"A": "b"}),
        McpServer("web", url="http://127.0.0.1:9/https/mcp.example"),
    )
    adapter = Claude(Setup(("claude",), home="/home/a", instructions="be kind", mcps=servers))
    files = dict(adapter.files())
    assert files[".claude/CLAUDE.md"] == "be kind"
    assert json.loads(files[SERVERS]) == {
        "mcpServers": {
            "files": {
                "type": "stdio",
                "command": "mcp-files",
                "args": ["/work"],
                "env": {"A": "b"},
            },
            "web": {"type": "http", "url": "http://127.0.0.1:9/https/mcp.example"},
        }
    }
    assert adapter.command()[-2:] == ("--mcp-config", f"/home/a/{SERVERS}")
    assert Claude(Setup(("claude",))).files() == {}
