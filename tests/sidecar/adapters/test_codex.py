from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from postroom.protocol.events import EventKind
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters import End
from postroom.sidecar.adapters.codex import Codex
from postroom.sidecar.adapters.codex_exec import CodexExec
from postroom.sidecar.adapters.codex_items import unwrapped
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, Withdrawn, Write
from tests.sidecar.adapters.replay import begin_turn, check, events, made, played

COMMAND = "echo hi > as1.txt; cat as1.txt"


def fields(case: str, kind: EventKind) -> list[dict[str, Any]]:
    return [dict(event.fields) for event in events(played(case), kind)]


def line(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def written(said: list[Any]) -> list[dict[str, Any]]:
    data = b"".join(item.data for item in said if isinstance(item, Write))
    return [json.loads(one) for one in data.splitlines()]


def notified(method: str, **params: Any) -> bytes:
    return line(method=method, params={"threadId": "th", **params})


def opened(**setup: Any) -> Codex:
    """An adapter whose thread is open."""
    adapter = made("codex", **setup)
    assert isinstance(adapter, Codex)
    adapter.feed(line(id=1, result={}))
    adapter.feed(line(id=2, result={"thread": {"id": "th", "cliVersion": "0.169.0"}, "model": "m"}))
    return adapter


def working(**setup: Any) -> Codex:
    adapter = opened(**setup)
    begin_turn(adapter)
    adapter.feed(line(id=3, result={"turn": {"id": "tu"}}))
    return adapter


def totals(count: int, last: int) -> bytes:
    told = {"total": {"inputTokens": count}, "last": {"inputTokens": last}}
    return notified("thread/tokenUsage/updated", tokenUsage=told)


# ── app-server ──


def test_a_turn_with_a_command_that_was_allowed():
    case = "codex/appserver_approve.jsonl"
    [asked] = [item for item in played(case) if isinstance(item, Asked)]
    assert (asked.tool, asked.title, asked.call) == ("shell", COMMAND, "call_fake001")
    assert asked.input == {"command": COMMAND, "cwd": "/home/agent/work"}
    [call] = fields(case, EventKind.TOOL_CALL)
    assert (call["call"], call["title"], call["input"]) == ("call_fake001", COMMAND, asked.input)
    assert fields(case, EventKind.TOOL_RESULT) == [
        {"call": "call_fake001", "status": "ok", "output": "hi\n", "exit_code": 0}
    ]
    assert fields(case, EventKind.TEXT) == [
        {"text": "Step 1: using a tool."},
        {"text": "All done. The fake model says hello."},
    ]
    assert fields(case, EventKind.RESULT) == [
        {"status": "completed", "text": "All done. The fake model says hello."}
    ]
    one = {"input_tokens": 120, "output_tokens": 15, "cached_tokens": 20, "reasoning_tokens": 3}
    assert fields(case, EventKind.USAGE) == [one, one]
    assert fields(case, EventKind.RAW) == []


def test_a_prompt_in_the_handshake_is_written_after_it():
    adapter = made("codex")
    assert adapter.turn("do it") == b""
    [hello, start] = written(adapter.feed(line(id=1, result={})))
    assert hello == {"method": "initialized"}
    assert start["method"] == "thread/start"
    assert start["params"] == {
        "cwd": "/work",
        "approvalPolicy": "untrusted",
        "sandbox": "danger-full-access",
    }
    [turn] = written(adapter.feed(line(id=2, result={"thread": {"id": "th"}})))
    assert turn["params"] == {"threadId": "th", "input": [{"type": "text", "text": "do it"}]}


def test_a_session_that_is_gone_becomes_a_new_one():
    adapter = made("codex", session="old")
    adapter.turn("do it")
    adapter.feed(line(id=1, result={}))
    said = adapter.feed(line(id=2, error={"code": -32600, "message": "no rollout found"}))
    assert events(said, EventKind.ERROR)[0].fields["code"] == "session-lost"
    [start] = written(said)
    assert start["method"] == "thread/start"
    [turn] = written(adapter.feed(line(id=3, result={"thread": {"id": "th"}})))
    assert turn["method"] == "turn/start"
    assert adapter.session == "th"


@pytest.mark.parametrize(
    "number, method", [(1, "initialize"), (2, "thread/start"), (3, "turn/start")]
)
def test_a_refusal_in_the_handshake_fails_the_turn(number: int, method: str):
    adapter = made("codex")
    adapter.turn("do it")
    said = []
    for step in range(1, number):
        said += adapter.feed(line(id=step, result={"thread": {"id": "th"}}))
    said += adapter.feed(line(id=number, error={"message": "not today"}))
    [end] = events(said, EventKind.RESULT)
    assert (end.fields["status"], end.fields["reason"]) == ("failed", "not today")
    assert events(said, EventKind.ERROR)[0].fields["code"] == method


def test_an_interrupt_before_the_turn_has_an_id_is_sent_then():
    adapter = opened()
    begin_turn(adapter)
    assert adapter.interrupt() == b""
    [stop] = written(adapter.feed(line(id=3, result={"turn": {"id": "tu"}})))
    assert (stop["method"], stop["params"]) == (
        "turn/interrupt",
        {"threadId": "th", "turnId": "tu"},
    )
    assert written(adapter.feed(notified("turn/started", turn={"id": "tu"}))) == []


def test_an_interrupted_turn_keeps_the_text_that_was_begun_and_withdraws_its_question():
    adapter = working()
    adapter.feed(notified("item/agentMessage/delta", itemId="m", delta="half a "))
    adapter.feed(notified("item/agentMessage/delta", itemId="m", delta="sentence"))
    ask = "item/commandExecution/requestApproval"
    adapter.feed(line(id=0, method=ask, params={"threadId": "th", "command": "ls", "itemId": "c"}))
    assert json.loads(adapter.interrupt())["params"]["turnId"] == "tu"
    said = adapter.feed(notified("turn/completed", turn={"id": "tu", "status": "interrupted"}))
    assert said[:2] == [Event(EventKind.TEXT, {"text": "half a sentence"}), Withdrawn("0")]
    [end] = events(said, EventKind.RESULT)
    assert end.fields["status"] == "interrupted"
    assert adapter.feed(notified("serverRequest/resolved", requestId=0)) == []


def test_a_turn_of_a_sub_agent_does_not_end_ours():
    adapter = working()
    other = line(
        method="turn/completed", params={"threadId": "sub", "turn": {"status": "completed"}}
    )
    assert adapter.feed(other) == []
    item = {"type": "agentMessage", "id": "m", "text": "inner"}
    [text] = adapter.feed(line(method="item/completed", params={"threadId": "sub", "item": item}))
    assert text == Event(EventKind.TEXT, {"text": "inner", "parent": "sub"})


def test_a_file_change_is_asked_with_its_changes():
    adapter = working()
    changes = [{"path": "/src/a.txt", "kind": {"type": "add"}, "diff": "hello\n"}]
    item = {"type": "fileChange", "id": "c1", "changes": changes, "status": "inProgress"}
    adapter.feed(notified("item/started", item=item))
    ask = "item/fileChange/requestApproval"
    [asked] = adapter.feed(line(id="x", method=ask, params={"threadId": "th", "itemId": "c1"}))
    assert isinstance(asked, Asked)
    assert (asked.tool, asked.title, asked.call) == ("edit", "/src/a.txt", "c1")
    assert asked.fixed
    assert asked.input["changes"] == changes
    assert json.loads(adapter.answer('"x"', Answer(allow=True))) == {
        "id": "x",
        "result": {"decision": "accept"},
    }
    [done] = adapter.feed(notified("item/completed", item=item | {"status": "completed"}))
    assert isinstance(done, Event)
    assert (done.fields["status"], done.fields["output"]) == ("ok", "hello")


@pytest.mark.parametrize(
    "answer, told",
    [
        (Answer(allow=False), ""),
        (Answer(allow=False, text="too risky"), "Not allowed: rm -r /. too risky"),
        (
            Answer(allow=True, input={"command": "ls"}),
            'Not allowed: rm -r /. Allowed in its place: {"command":"ls"}',
        ),
    ],
)
def test_a_denial_is_told_with_its_words(answer: Answer, told: str):
    adapter = working()
    ask = "item/commandExecution/requestApproval"
    adapter.feed(line(id=0, method=ask, params={"threadId": "th", "command": "rm -r /"}))
    [said, *steered] = [json.loads(one) for one in adapter.answer("0", answer).splitlines()]
    assert said == {"id": 0, "result": {"decision": "decline"}}
    assert [one["params"]["input"][0]["text"] for one in steered] == ([told] if told else [])
    assert all(one["params"]["expectedTurnId"] == "tu" for one in steered)


def test_a_question_is_answered_by_words():
    adapter = working()
    questions = [{"id": "q1", "question": "which?", "options": [{"label": "red"}]}]
    params = {"threadId": "th", "itemId": "c", "questions": questions}
    [asked] = adapter.feed(line(id=5, method="item/tool/requestUserInput", params=params))
    assert isinstance(asked, Asked)
    assert (asked.question, asked.title, asked.options) == (True, "which?", ("red",))
    answer = json.loads(adapter.answer("5", Answer(allow=True, text="red")))
    assert answer["result"] == {"answers": {"q1": {"answers": ["red"]}}}


def test_rights_are_given_for_the_turn_alone():
    adapter = working()
    wanted = {"network": {"enabled": True}}
    params = {"threadId": "th", "permissions": wanted, "reason": "to fetch"}
    for request, allow, given in ((6, True, wanted), (7, False, {})):
        adapter.feed(line(id=request, method="item/permissions/requestApproval", params=params))
        answer = json.loads(adapter.answer(str(request), Answer(allow=allow)).splitlines()[0])
        assert answer["result"] == {"permissions": given, "scope": "turn"}


def test_an_unknown_request_is_refused_so_that_it_does_not_wait():
    [refusal] = written(working().feed(line(id=0, method="item/new/request", params={})))
    assert refusal["error"]["code"] == -32601


def test_a_failed_model_is_a_failed_turn_and_a_retry_is_not():
    adapter = working()
    told = {"message": "gone", "codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 401}}}
    said = adapter.feed(
        notified("error", error=told, willRetry=True)
        + notified("error", error=told, willRetry=False)
        + notified("turn/completed", turn={"id": "tu", "status": "failed", "error": told})
    )
    assert [(one.fields["code"], one.fields["fatal"]) for one in events(said, EventKind.ERROR)] == [
        ("401", False),
        ("401", True),
    ]
    [end] = events(said, EventKind.RESULT)
    assert (end.fields["status"], end.fields["reason"]) == ("failed", "gone")


def test_what_was_used_before_the_session_was_resumed_is_not_counted_again():
    during = working(session="th").feed(totals(1100, 100) + totals(1150, 50))
    before = opened(session="th")
    first = before.feed(totals(1000, 70))
    begin_turn(before)
    before.feed(line(id=3, result={"turn": {"id": "tu"}}))
    after = before.feed(totals(1100, 100))
    assert [one.fields["input_tokens"] for one in events(during, EventKind.USAGE)] == [100, 50]
    assert first == []
    assert [one.fields["input_tokens"] for one in events(after, EventKind.USAGE)] == [100]


def test_an_autonomous_codex_asks_for_nothing():
    adapter = made("codex", autonomous=True)
    [_, start] = written(adapter.feed(line(id=1, result={})))
    assert start["params"]["approvalPolicy"] == "never"


@pytest.mark.parametrize(
    "command, script",
    [
        ("/bin/bash -lc 'echo hi; ls'", "echo hi; ls"),
        ("bash -c ls", "ls"),
        ("/bin/bash -lc 'it'\"'\"'s'", "it's"),
        ("git status", "git status"),
        ("/bin/bash -lc ls -l", "/bin/bash -lc ls -l"),
        ("bash -lc 'open", "bash -lc 'open"),
        ("python -c pass", "python -c pass"),
    ],
)
def test_the_script_of_a_shell_is_what_is_asked(command: str, script: str):
    assert unwrapped(command) == script


def test_its_home_has_instructions_servers_and_nothing_that_calls_out():
    servers = (
        McpServer("my files", ("mcp-files", 'a"b\x7f'), env={"A B": "ü"}),
        McpServer("web", url="http://127.0.0.1:9/https/mcp.example"),
    )
    adapter = Codex(Setup(("codex",), home="/home/a", instructions="be kind", mcps=servers))
    files = dict(adapter.files())
    config = tomllib.loads(files[".codex/config.toml"])
    assert config["mcp_servers"] == {
        "my-files": {"command": "mcp-files", "args": ['a"b\x7f'], "env": {"A B": "ü"}},
        "web": {"url": "http://127.0.0.1:9/https/mcp.example"},
    }
    assert not config["analytics"]["enabled"]
    assert not config["check_for_update_on_startup"]
    assert files[".codex/AGENTS.md"] == "be kind"
    assert adapter.environment() == {"CODEX_HOME": "/home/a/.codex"}


# ── exec ──


def test_a_turn_of_exec():
    case = "codex-exec/shell.jsonl"
    [call] = fields(case, EventKind.TOOL_CALL)
    assert (call["tool"], call["title"]) == ("shell", "echo hi > a.txt; ls a.txt")
    assert fields(case, EventKind.TOOL_RESULT) == [
        {"call": "item_2", "status": "ok", "output": "a.txt\n", "exit_code": 0}
    ]
    [warning] = fields(case, EventKind.ERROR)
    assert warning["code"] == "warning"
    assert fields(case, EventKind.RESULT) == [
        {"status": "completed", "text": "All done. The fake model says hello."}
    ]


def test_a_failed_command_of_exec_has_its_exit_code():
    [failed] = fields("codex-exec/shell_fail.jsonl", EventKind.TOOL_RESULT)
    assert (failed["status"], failed["exit_code"]) == ("error", 3)


def test_a_failed_model_of_exec_is_a_failed_turn():
    [end] = fields("codex-exec/model_401.jsonl", EventKind.RESULT)
    assert end["status"] == "failed"
    assert end["reason"].startswith("unexpected status 401 Unauthorized")


def test_exec_counts_from_the_begin_of_its_session():
    first = made("codex-exec")
    begin_turn(first)
    used = {"input_tokens": 240, "output_tokens": 30, "cached_input_tokens": 40}
    first.feed(line(type="thread.started", thread_id="th"))
    first.feed(line(type="turn.completed", usage=used))
    assert first.session == "th 240,30,40,0"
    second = made("codex-exec", session=first.session)
    assert second.command("go on")[-3:] == ("resume", "th", "-")
    said = second.feed(line(type="thread.started", thread_id="th"))
    said += second.feed(line(type="turn.completed", usage=used | {"input_tokens": 360}))
    [started] = events(said, EventKind.STARTED)
    assert (started.fields["session"], started.fields["resumed"]) == ("th", True)
    [now] = events(said, EventKind.USAGE)
    assert now.fields == {"input_tokens": 120, "output_tokens": 0}


def test_exec_reads_its_prompt_and_no_more():
    adapter = CodexExec(Setup(("codex", "-c", "a=1")))
    assert "do it" not in adapter.command("do it")
    assert adapter.turn("do it") == b"do it"
    said = adapter.finish(End(1, signalled=True))
    check(said, turns=1)
    [end] = events(said, EventKind.RESULT)
    assert end.fields["status"] == "interrupted"
