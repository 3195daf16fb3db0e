"""The messages API: `POST /v1/messages`, as a stream or whole, and `/v1/messages/count_tokens`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.fakes.model.dialect import INPUT_TOKENS, OUTPUT_TOKENS, event, words
from tests.fakes.model.script import (
    Ask,
    Call,
    Conversation,
    Edit,
    Fail,
    Run,
    Runs,
    Say,
    Step,
    offered,
)

_number = itertools.count(1)


def takes(path: str) -> bool:
    """See `Dialect`."""
    return path.endswith(("/v1/messages", "/v1/messages/count_tokens"))


def read(body: Mapping[str, Any]) -> Conversation:
    """See `Dialect`."""
    user, results = "", []
    for message in body.get("messages", []):
        content = message.get("content", "")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        done = [_text(block.get("content")) for block in blocks if block["type"] == "tool_result"]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        said = [text for text in texts if not text.startswith("<system-reminder>")]
        if message.get("role") != "user":
            continue
        if done:
            results += done
        elif said:
            # Prompts that had no answer are blocks of the same message; the last one counts.
            user, results = said[-1], []
    return Conversation(user, tuple(results), tuple(_names(body)))


def stream(step: Step, path: str, body: Mapping[str, Any]) -> Iterator[bytes]:
    """See `Dialect`."""
    message = _message(body)
    yield _event("message_start", message=message | {"content": [], "stop_reason": None})
    blocks = _blocks(step, _callable(body))
    for index, block in enumerate(blocks):
        yield from _block(index, block)
    usage = {"output_tokens": OUTPUT_TOKENS}
    yield _event(
        "message_delta", delta={"stop_reason": _reason(blocks), "stop_sequence": None}, usage=usage
    )
    yield _event("message_stop")


def whole(step: Step, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """See `Dialect`."""
    if path.endswith("/count_tokens"):
        return {"input_tokens": INPUT_TOKENS}
    if body.get("stream"):
        return None
    blocks = _blocks(step, _callable(body))
    return _message(body) | {"content": blocks, "stop_reason": _reason(blocks)}


def failure(status: int) -> dict[str, Any]:
    """See `Dialect`."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": "scripted failure"}}


def _message(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_fake{next(_number)}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "fake"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _names(body: Mapping[str, Any]) -> list[str]:
    return [tool.get("name", "") for tool in body.get("tools") or ()]


def _callable(body: Mapping[str, Any]) -> list[str]:
    """Names of the tools, and of those that the agent only names in a note until the model looks for them."""
    return [*_names(body), *re.findall(r"mcp__\w+", json.dumps(body.get("messages")))]


def _blocks(step: Step, tools: Sequence[str]) -> list[dict[str, Any]]:
    thought = (
        [{"type": "thinking", "thinking": step.thought, "signature": "c2ln"}]
        if step.thought
        else []
    )
    match step.deed:
        case Say(text):
            return [*thought, {"type": "text", "text": text}]
        case Run(command):
            deed = _shell(command)
        case Runs(commands):
            return [*thought, *(_shell(command) for command in commands)]
        case Call(tool, arguments):
            deed = _call(offered(tool, tools), json.loads(arguments))
        case Edit(file, text):
            deed = _call("Write", {"file_path": file, "content": text})
        case Ask(question, options):
            choices = [
                {"label": option, "description": option} for option in options or ("yes", "no")
            ]
            asked = {
                "question": question,
                "header": "Scripted",
                "options": choices,
                "multiSelect": False,
            }
            deed = _call("AskUserQuestion", {"questions": [asked]})
        case Fail():
            raise ValueError("a failure has no answer")
    return [*thought, {"type": "text", "text": "Using a tool."}, deed]


def _shell(command: str) -> dict[str, Any]:
    return _call("Bash", {"command": command, "description": "scripted"})


def _call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": f"toolu_fake{next(_number)}",
        "name": tool,
        "input": arguments,
    }


def _block(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    if block["type"] == "text":
        empty, deltas = (
            block | {"text": ""},
            [{"type": "text_delta", "text": word} for word in words(block["text"])],
        )
    elif block["type"] == "thinking":
        empty = block | {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        deltas += [{"type": "signature_delta", "signature": block["signature"]}]
    else:
        empty = block | {"input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    yield _event("content_block_start", index=index, content_block=empty)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _reason(blocks: list[dict[str, Any]]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content or ())
