"""Our ACP driver against an agent on the official SDK, which checks each message by the protocol's schema."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.protocol.events import EventKind
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.turns import Answer, Asked, Setup, Withdrawn
from tests.sidecar.adapters.driving import Driven, fields, words

AGENT = Path(__file__).parent / "reference_agent.py"

SERVERS = (
    McpServer("notes", ("notes-mcp",), env={"A": "1"}),
    McpServer("web", url="http://127.0.0.1:9/mcp"),
)


def agent(folder: Path, session: str = "") -> Driven:
    """The agent, with its sessions in `folder`."""
    command = (sys.executable, str(AGENT))
    setup = Setup(command, cwd=str(folder), home=str(folder), session=session, mcps=SERVERS)
    return Driven("acp", setup)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def reference(folder: Path) -> Iterator[Driven]:
    """One run of the agent, whose import takes seconds, for the turns of all tests."""
    with agent(folder) as running:
        yield running


@pytest.mark.requirement("mcp-servers-reach-agents")
def test_a_turn_of_words(reference: Driven) -> None:
    said = reference.turn("tell")
    assert words(said) == "Hello again. [notes, web]"
    assert fields(said, EventKind.USAGE) == [
        {"input_tokens": 120, "output_tokens": 15, "cached_tokens": 20}
    ]
    assert fields(said, EventKind.RESULT) == [
        {"status": "completed", "text": "Hello again. [notes, web]"}
    ]


def test_a_call_and_a_plan(reference: Driven) -> None:
    (call,) = fields(reference.turn("work"), EventKind.TOOL_CALL)
    assert call == {"call": "c1", "tool": "execute", "title": "ls", "input": {"command": "ls"}}
    thoughts = fields(reference.turn("plan"), EventKind.THINKING)
    assert [thought["text"] for thought in thoughts] == ["Hm.", "[x] look"]


@pytest.mark.requirement("acp-permission-by-kind")
@pytest.mark.parametrize("allow, chosen, status", [(True, "2", "ok"), (False, "1", "denied")])
def test_a_question_allowed_and_denied(
    reference: Driven, allow: bool, chosen: str, status: str
) -> None:
    reference.decide = lambda asked: Answer(allow)
    said = reference.turn("ask")
    (asked,) = [item for item in said if isinstance(item, Asked)]
    assert asked.input == {
        "path": "a.txt",
        "diff": "--- a.txt\n+++ a.txt\n@@ line 1 @@\n-old\n+new",
    }
    assert words(said) == f"chosen: {chosen}"
    assert [r["status"] for r in fields(said, EventKind.TOOL_RESULT)] == [status]


@pytest.mark.requirement("acp-permission-by-kind")
def test_an_interrupt_while_a_question_is_open(reference: Driven) -> None:
    reference.decide = lambda asked: None
    reference.begin("ask")
    reference.until(Asked)
    reference.interrupt()
    said = reference.until(EventKind.RESULT)
    assert [item for item in said if isinstance(item, Withdrawn)]
    assert fields(said, EventKind.RESULT)[0]["status"] == "interrupted"


def test_a_failure_and_what_is_not_served_end_nothing(reference: Driven) -> None:
    (result,) = fields(reference.turn("fail"), EventKind.RESULT)
    assert (result["status"], "the model said 401" in result["reason"]) == ("failed", True)
    assert fields(reference.turn("auth"), EventKind.RESULT)[0]["status"] == "failed"
    assert words(reference.turn("read")) == "refused: -32601"


@pytest.mark.requirement("coding-session-survives-sigkill")
def test_a_session_goes_on_after_sigkill_of_the_agent(tmp_path: Path) -> None:
    with agent(tmp_path) as first:
        first.turn("tell")
        first.kill()
    with agent(tmp_path, first.adapter.session) as second:
        said = second.turn("remember")
        assert [event["resumed"] for event in fields(said, EventKind.STARTED)] == [True]
        assert words(said) == "tell;remember;"
        second.kill()
    with agent(tmp_path, "unknown") as third:
        said = third.turn("remember")
        assert words(said) == "remember;"  # a new session
        assert fields(said, EventKind.STARTED)[0]["session"] == third.adapter.session != "unknown"
