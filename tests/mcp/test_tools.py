"""The table of tools: each is made from operations that there are, and is short enough for a model."""

from __future__ import annotations

import json
import types
from typing import Any, Literal, get_args, get_origin

import pytest

from postroom.control.api import OPERATIONS
from postroom.errors import InvalidInput
from postroom.mcp.calls import Calls
from postroom.mcp.tools import ALL, INSTRUCTIONS, TOOLS, USUAL, Tool, checked, fields_of, offered
from postroom.sidecar.tools import REPORTS, WorkerCalls

BY_NAME = {each.name: each for each in OPERATIONS}
CHARACTERS_OF_A_TOKEN = 3
"""Of the compact JSON of the list: tokenizers of models have about four, so this counts too many."""

MOST_TOKENS = 2500
USUALLY = (
    *("whoami", "check_inbox", "read_message", "send_message", "reply", "ask", "list_agents"),
    *("delegate_task", "get_task", "cancel_task", "report_task", "ask_human"),
)
FURTHER = (
    *("register", "get_agent_capabilities", "set_capabilities", "message_status"),
    *("rotate_api_key", "authorize", "list_authorizations", "revoke_authorization", "set_webhook"),
)


def listed(which: str) -> str:
    """The tools as a client gets them."""
    tools = [tool.listed for tool in offered(which)]
    return json.dumps(tools, separators=(",", ":"))


def test_twelve_tools_are_for_everybody_and_nine_more_for_who_asks():
    assert [tool.name for tool in offered(USUAL)] == [f"a2a_{name}" for name in USUALLY]
    assert {tool.name for tool in offered(ALL)} == {f"a2a_{name}" for name in (*USUALLY, *FURTHER)}


@pytest.mark.requirement("mcp-tools-short")
def test_what_a_model_pays_for_the_tools_is_bounded(capsys: pytest.CaptureFixture[str]):
    longest = max(len(tool.help) for tool in TOOLS.values())
    tokens = {which: len(listed(which)) / CHARACTERS_OF_A_TOKEN for which in (USUAL, ALL)}
    with capsys.disabled():
        print(  # noqa: T201
            f"\nMCP tools: {tokens[USUAL]:.0f} tokens (limit {MOST_TOKENS}), all {tokens[ALL]:.0f}; "
            f"longest description {longest} characters (limit 300)"
        )
    assert longest <= 300
    assert tokens[USUAL] <= MOST_TOKENS
    assert len(INSTRUCTIONS) < 2000  # Claude Code cuts them at 2 KB


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_a_tool_takes_fields_that_its_operation_has(tool: Tool):
    known = fields_of(tool.operation)
    assert {*tool.fields, *tool.called.values()} <= known.keys()
    assert set(tool.required) <= tool.schema["properties"].keys()
    assert set(tool.called.values()) <= set(tool.fields)
    assert {tool.operation, *tool.also} <= BY_NAME.keys()
    assert not set(tool.own) & (known.keys() - {"wait"})
    assert getattr(Calls, f"_{tool.name}")
    assert hasattr(WorkerCalls, f"_{tool.name}") is tool.usual
    for name, shown in tool.schema["properties"].items():
        if "enum" in shown and name not in tool.own:
            field = tool.called.get(name, name)
            assert set(shown["enum"]) == {each for each in literal(tool.operation, field) if each}


def literal(operation: str, field: str) -> tuple[Any, ...]:
    """The values that a field of an operation may have."""
    found = BY_NAME[operation]
    hint: Any = next((each.hint for each in found.query.values() if each.shown == field), None)
    if hint is None:
        assert found.body is not None
        hint = found.body.hint.model_fields[field].annotation
    while get_origin(hint) not in (Literal, types.UnionType):
        (hint, *_) = get_args(hint)
    return get_args(hint)


def test_no_argument_takes_a_key_or_a_secret():
    names = {name for tool in TOOLS.values() for name in tool.schema["properties"]}
    assert not {"api_key", "token", "secret", "authorization", "pin", "password", "code"} & names
    keys = [tool.schema["properties"]["key"] for tool in TOOLS.values() if "key" in tool.fields]
    assert all("a2a_" not in str(each) for each in keys)


def test_each_state_that_a_worker_may_report_has_its_verb():
    shown = TOOLS["a2a_report_task"].schema["properties"]["state"]
    assert set(REPORTS) == set(shown["enum"])


@pytest.mark.parametrize(
    "arguments, why",
    [
        ({"text": "x", "to": 5}, "to has to be of the type string"),
        ({"text": "x", "wait": True}, "wait has to be of the type number"),
        ({"text": "x", "wait": 51}, "wait is out of its bounds: 0 to 50"),
        ({"text": "x", "wait": float("nan")}, "wait is out of its bounds: 0 to 50"),
        ({"to": "@a"}, "text is missing"),
        ({"text": "x", "to": "@a", "org": "other"}, "a2a_ask has no argument 'org'"),
    ],
)
def test_arguments_are_checked_before_anything_is_asked(arguments: dict[str, Any], why: str):
    with pytest.raises(InvalidInput, match=why):
        checked(TOOLS["a2a_ask"], arguments)


def test_what_a_client_sends_as_null_was_not_given():
    assert checked(TOOLS["a2a_ask"], {"text": "x", "to": "@a", "wait": None}) == {
        "text": "x",
        "to": "@a",
    }
