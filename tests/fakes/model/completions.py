"""OpenAI's chat completions, as many services have them: `POST .../chat/completions`, as a stream or whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.fakes.model.dialect import (
    CACHED_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REASONING_TOKENS,
    event,
    words,
)
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
    return path.endswith("/chat/completions")


def read(body: Mapping[str, Any]) -> Conversation:
    """See `Dialect`."""
    user, results = "", []
    for message in body.get("messages", []):
        if message.get("role") == "tool":
            results.append(_text(message.get("content")))
        elif message.get("role") == "user":
            user, results = _text(message.get("content")), []
    return Conversation(user, tuple(results), tuple(_names(body)))


def stream(step: Step, path: str, body: Mapping[str, Any]) -> Iterator[bytes]:
    """See `Dialect`."""
    head = {"id": f"chatcmpl-{next(_number)}", "object": "chat.completion.chunk"}
    message = _message(step, body)
    yield _chunk(head, {"role": "assistant", "content": ""})
    if step.thought:
        yield _chunk(head, {"reasoning_content": step.thought})
    for word in words(message["content"]):
        yield _chunk(head, {"content": word})
    for index, call in enumerate(message.get("tool_calls", ())):
        yield _chunk(head, {"tool_calls": [{"index": index, **call}]})
    yield _chunk(head, {}, _reason(message))
    yield event({**head, "choices": [], "usage": _usage()})
    yield b"data: [DONE]\n\n"


def whole(step: Step, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """See `Dialect`."""
    if body.get("stream"):
        return None
    message = _message(step, body)
    choice = {"index": 0, "message": message, "finish_reason": _reason(message)}
    return {
        "id": f"chatcmpl-{next(_number)}",
        "object": "chat.completion",
        "choices": [choice],
        "usage": _usage(),
    }


def failure(status: int) -> dict[str, Any]:
    """See `Dialect`."""
    return {"error": {"message": "scripted failure", "type": "scripted", "code": str(status)}}


def _message(step: Step, body: Mapping[str, Any]) -> dict[str, Any]:
    match step.deed:
        case Say(text) | Ask(text):
            return {"role": "assistant", "content": text}
        case Run(command):
            deed = _call(_shell(body), command=command, description="scripted")
        case Edit(file, text):
            deed = _call("write", filePath=file, content=text)
        case Call(tool, arguments):
            deed = _call(offered(tool, _names(body)), **json.loads(arguments))
        case Runs() | Fail():
            raise ValueError("this dialect has no answer for it")
    return {"role": "assistant", "content": "Using a tool.", "tool_calls": [deed]}


def _shell(body: Mapping[str, Any]) -> str:
    """The name of the shell tool that the agent offers."""
    return next((name for name in _names(body) if name in ("bash", "shell")), "bash")


def _call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_fake{next(_number)}", "type": "function", "function": function}


def _reason(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _chunk(head: Mapping[str, Any], delta: Mapping[str, Any], reason: str | None = None) -> bytes:
    return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _usage() -> dict[str, Any]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "completion_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
    }


def _names(body: Mapping[str, Any]) -> list[str]:
    return [tool.get("function", {}).get("name", "") for tool in body.get("tools") or ()]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or () if isinstance(part, dict))
